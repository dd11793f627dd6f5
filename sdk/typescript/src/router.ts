/**
 * The wire of the capability-router protocol: the methods, the shapes of their parameters and results, and the checks of names,
 * paths and headers. Nothing here does I/O.
 */
import { isIPv6 } from "node:net";
import { isObject } from "./errors.js";

/** The three codes of the protocol. */
export type WireCode = "CAPABILITY_UNAVAILABLE" | "CAPABILITY_DECODE_FAILED" | "CAPABILITY_REQUEST_FAILED";

/** A failure in the form of the protocol. */
export class WireError extends Error {
  override readonly name = "WireError";
  /** One of the three codes. */
  readonly code: WireCode;
  /** The method, for decode errors followed by a dotted path. */
  readonly at: string;
  /** Further facts. */
  readonly details: Record<string, unknown> | undefined;
  /** Status of the HTTP response; 200 for a failure of a capability. */
  status = 200;

  /** Returns a failure. */
  constructor(code: WireCode, message: string, at: string, details?: Record<string, unknown>) {
    super(message);
    this.code = code;
    this.at = at;
    this.details = details;
  }
}

/** Reports why a text is not valid, or returns undefined. */
type Check = (text: string) => string | undefined;

type Kind =
  | "any"
  | "text"
  | "number"
  | "boolean"
  | "object"
  | "list"
  | "texts"
  | "objects"
  | "textMap"
  | "scalarMap"
  | "queryMap"
  | "headerMap"
  | "record"
  | "records"
  | "recordMap";

interface Field {
  name: string;
  kind: Kind;
  optional?: boolean;
  /** null is allowed and kept. */
  orNull?: boolean;
  /** A wrong type is reported at <path>.<name>, not at <path>. */
  apart?: boolean;
  nonEmpty?: boolean;
  unique?: boolean;
  /** Where errors are reported, in place of the path. */
  at?: string;
  check?: Check;
  rewrite?: (text: string) => string;
  sub?: Shape;
}

/** One object of the protocol: its members, in the order in which they are checked. */
interface Shape {
  fields: Field[];
  /** An old name that is accepted for another member. */
  alias?: [from: string, to: string];
  /** Adds a member raw with the whole object. */
  keepRaw?: boolean;
}

type More = Omit<Partial<Field>, "name" | "kind">;
const need = (names: string, kind: Kind, more: More = {}): Field[] => names.split(" ").map((name) => ({ name, kind, ...more }));
const opt = (names: string, kind: Kind, more: More = {}): Field[] => need(names, kind, { optional: true, ...more });
const shape = (...parts: Field[][]): Shape => ({ fields: parts.flat() });
const among = (...values: string[]): More => ({
  check: (s) => (values.includes(s) ? undefined : "is not one of the values of the protocol"),
});

const trimmed = (s: string) => s.trim();
const blank = (s: string) => trimmed(s) === "";
const singleLine = (s: string) => !/[\r\n\0]/.test(s);
const control = /[\u0000-\u001f\u007f]/;

const notBlank: Check = (s) => (blank(s) ? "must not be blank" : undefined);
const oneLine: Check = (s) => (blank(s) || !singleLine(s) ? "must not be blank and must not hold CR, LF or NUL" : undefined);
const base64: Check = (s) =>
  s.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(s) ? undefined : "must be padded base64 of the standard alphabet without blanks";
const digest: Check = (s) => (/^[0-9a-fA-F]{64}$/.test(s) ? undefined : "must be 64 hexadecimal digits");

const reservedMethods = new Set([
  "callRemote",
  "constructor",
  "hasOwnProperty",
  "isPrototypeOf",
  "propertyIsEnumerable",
  "toLocaleString",
  "toString",
  "valueOf",
  "__defineGetter__",
  "__defineSetter__",
  "__lookupGetter__",
  "__lookupSetter__",
  "__proto__",
]);

const serviceMethod: Check = (s) => {
  if (!/^[A-Za-z_$][A-Za-z0-9_$]*$/.test(s)) return "must be an identifier of letters, digits, '_' and '$'";
  return reservedMethods.has(s) ? "is a name that every object has already" : undefined;
};

/** Reports why a text is not the id of a module. */
export const checkModuleID: Check = (s) =>
  /^[A-Za-z0-9._-]+$/.test(s) && s !== "." && s !== ".."
    ? undefined
    : `must be of letters, digits, '.', '_' and '-', and neither "." nor ".."`;

function checkSegments(rest: string): string | undefined {
  const unsafe = "holds a character or a segment that is not allowed in a path";
  if (/[?#\\]/.test(rest) || control.test(rest)) return unsafe;
  for (const segment of rest.split("/")) {
    if (segment === "") return "must be a path that starts with one '/' and has no empty segment";
    // The next server may decode a segment once more.
    const decoded = segment.replace(/%([0-9a-fA-F]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
    for (const form of [segment, decoded]) if (form === "." || form === ".." || /[/\\]/.test(form) || control.test(form)) return unsafe;
  }
  return undefined;
}

/** Reports why a text is not a local path: it starts with one slash and has no unsafe segment. */
export const checkLocalPath: Check = (s) => {
  if (!s.startsWith("/") || s.startsWith("//")) return "must be a path that starts with one '/' and has no empty segment";
  return s === "/" ? undefined : checkSegments(s.slice(1));
};

/** Reports why a text is not the path of an asset. A leading slash is optional. */
export const checkAssetPath: Check = (s) => {
  const path = trimmed(s);
  if (path === "" || path.startsWith("//") || /^[a-zA-Z][a-zA-Z\d+.-]*:/.test(path)) {
    return "must be a relative asset path without a scheme and without empty segments";
  }
  if (control.test(s)) return "holds a character or a segment that is not allowed in a path";
  return checkSegments(path.replace(/^\//, ""));
};

/** Returns the path of an asset with one leading slash. */
export const cleanAssetPath = (s: string): string => "/" + trimmed(s).replace(/^\//, "");

const browserURL: Check = (s) => {
  const wrong = "must be an absolute http or https URL without credentials";
  const match = /^https?:[/\\]*([^/\\?#]*)/i.exec(s.replace(/^[\u0000-\u0020]+|[\u0000-\u0020]+$/g, "").replace(/[\t\r\n]/g, ""));
  const authority = match?.[1];
  if (authority === undefined || /[@<>^|% "`{}]/.test(authority) || control.test(authority)) return wrong;
  const parts = authority.startsWith("[") ? /^\[([^\]]*)\](?::(\d*))?$/.exec(authority) : /^([^:[\]]+)(?::(\d*))?$/.exec(authority);
  if (!parts || (authority.startsWith("[") && !isIPv6(parts[1] ?? ""))) return wrong;
  return Number(parts[2] ?? 0) > 65535 ? wrong : undefined;
};

const bundleURL: Check = (s) =>
  s.startsWith("/") ? checkLocalPath(s) : browserURL(s) && "must be a local path or an absolute http or https URL without credentials";

function checkHeader(name: string, value: string): string | undefined {
  if (!/^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$/.test(name)) return "holds a header name that is not an HTTP token";
  return singleLine(value) ? undefined : "holds a header value with CR, LF or NUL";
}

// ---- Shapes ------------------------------------------------------------------

/** The hooks of plugin.lifecycle.call. */
export const lifecycleHooks = ["init", "dispose", "applyConfig"] as const;

/** The hooks of plugin.appBridge.call. */
export const appBridgeHooks = [
  "prepareLaunch",
  "resolveViewerAuthMessage",
  "ensureRuntimeReady",
  "collectLaunchDiagnostics",
  "resolveLaunchSession",
  "refreshRunSession",
  "stopRun",
  "handleAppRoutes",
] as const;

const verbs = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const filled = { check: notBlank };

const componentSchema: Shape = { fields: [] };
componentSchema.fields = [
  ...need("type", "text", filled),
  ...opt("properties", "recordMap", { sub: componentSchema }),
  ...opt("items", "record", { sub: componentSchema }),
  ...opt("required", "texts"),
  ...opt("enumValues", "texts"),
  ...opt("description", "text"),
];

const widgetShape = shape(
  need("id", "text", filled),
  opt("pluginId", "text", filled),
  need(
    "slot",
    "text",
    among("chat-sidebar", "chat-inline", "wallet", "browser", "heartbeats", "character", "settings", "nav-page", "automations"),
  ),
  need("label", "text", filled),
  opt("icon", "text"),
  opt("order", "number"),
  opt("defaultEnabled", "boolean"),
  opt("navGroup", "text"),
  opt("developerOnly", "boolean"),
  opt("componentExport", "text"),
  opt("viewKind", "text"),
);

const viewShape = shape(
  need("id label", "text", filled),
  opt("viewType", "text", among("gui", "tui", "xr")),
  opt("bundlePath", "text", { check: checkAssetPath }),
  opt("bundleUrl", "text", { check: bundleURL }),
  opt("framePath", "text", { check: checkAssetPath }),
  opt("frameUrl", "text", { check: bundleURL }),
  opt("contentType integrity viewKind", "text"),
  opt("surface", "object"),
);

const appShape = shape(
  opt("displayName", "text", filled),
  opt("category launchType runtimePlugin bridgeExport", "text"),
  opt("launchUrl", "text", { check: browserURL, orNull: true }),
  opt("icon", "text", { orNull: true }),
  opt("capabilities", "texts"),
  opt("minPlayers maxPlayers", "number", { orNull: true }),
  opt("viewer", "record", {
    sub: shape(
      need("url", "text", { check: browserURL }),
      opt("embedParams", "textMap"),
      opt("postMessageAuth", "boolean"),
      opt("sandbox", "text"),
    ),
  }),
  opt("session", "record", {
    sub: shape(
      need("mode", "text", among("viewer", "spectate-and-steer", "external")),
      opt("features", "texts", among("commands", "telemetry", "pause", "resume", "suggestions")),
    ),
  }),
  opt("uiExtension", "record", { sub: shape(opt("detailPanelId", "text")) }),
  opt("developerOnly visibleInAppStore", "boolean"),
  opt("navTabs", "records", {
    sub: shape(
      need("id label", "text", filled),
      need("path", "text", { check: checkLocalPath }),
      opt("icon", "text"),
      opt("order", "number"),
      opt("developerOnly", "boolean"),
      opt("group componentExport viewKind", "text"),
      opt("surface", "object"),
    ),
  }),
  opt("viewKind", "text"),
);

/** The shape of a manifest. */
const moduleShape = shape(
  opt("capabilityEndpointId version description", "text"),
  opt("priority", "number"),
  opt("contexts", "texts"),
  opt("config", "scalarMap"),
  opt("schema", "object"),
  opt("actions", "records", {
    sub: shape(
      need("name description", "text", filled),
      opt("descriptionCompressed", "text"),
      opt("similes", "texts"),
      opt("parameters", "any"),
    ),
  }),
  opt("providers", "records", {
    sub: shape(need("name", "text", filled), opt("description descriptionCompressed", "text"), opt("dynamic private", "boolean")),
  }),
  opt("evaluators", "records", {
    sub: shape(
      need("name description prompt", "text", filled),
      need("schema", "object"),
      opt("similes providers", "texts"),
      opt("priority", "number"),
      opt("modelType", "text"),
      opt("hasPrepare hasProcessor", "boolean"),
    ),
  }),
  opt("responseHandlerEvaluators", "records", {
    sub: shape(need("name", "text", filled), opt("description", "text"), opt("priority", "number")),
  }),
  opt("responseHandlerFieldEvaluators", "records", {
    sub: shape(
      need("name description", "text", filled),
      need("schema", "object", { apart: true }),
      opt("priority", "number"),
      opt("hasParse hasHandle", "boolean"),
    ),
  }),
  opt("events", "records", { sub: shape(need("eventName", "text", filled)) }),
  opt("models", "records", { sub: shape(need("modelType", "text", filled), opt("priority", "number")) }),
  opt("services", "records", {
    sub: shape(
      need("serviceType", "text", filled),
      opt("capabilityDescription", "text"),
      opt("config", "object"),
      opt("methods", "texts", { check: serviceMethod, unique: true }),
    ),
  }),
  opt("componentTypes", "records", { sub: shape(need("name", "text", filled), need("schema", "record", { sub: componentSchema })) }),
  opt("widgets", "records", { sub: widgetShape }),
  opt("app", "record", { sub: appShape }),
  opt("appBridge", "record", { sub: shape(need("hooks", "texts", { ...among(...appBridgeHooks), nonEmpty: true })) }),
  opt("lifecycle", "record", { sub: shape(need("hooks", "texts", { ...among(...lifecycleHooks), nonEmpty: true })) }),
  opt("routes", "records", {
    sub: shape(
      need("method", "text", among(...verbs, "STATIC")),
      need("path", "text", { check: checkLocalPath }),
      opt("name", "text"),
      opt("public", "boolean"),
      opt("description publicReason publicWrite", "text"),
    ),
  }),
  opt("views", "records", { sub: viewShape }),
  opt("provenance", "record", {
    sub: shape(
      need("issuer subject", "text", filled),
      need("digestSha256", "text", { check: digest, rewrite: (s) => s.toLowerCase() }),
      need("signatureAlgorithm signature", "text", filled),
    ),
  }),
  opt("metadata", "object"),
  need("id", "text", { check: checkModuleID }),
  need("name", "text", filled),
);

// ---- Methods -----------------------------------------------------------------

/** One row of the method table. */
export interface Method {
  name: string;
  /** The capability flag: fs, pty, git, model or plugin. */
  family: string;
  /** The kind of manifest item that a plugin method serves. */
  surface: string;
  /** The parameter that names the item, or "". */
  target: string;
  /** @internal */
  params: Shape;
  /** @internal */
  result: Shape;
}

const low = (...parts: Field[][]): Shape => shape(...parts, opt("endpointId traceSessionId", "any"));
const git = (...parts: Field[][]): Shape => ({ ...low(...parts), alias: ["root", "cwd"] });
const plugin = (...parts: Field[][]): Shape =>
  shape(
    need("moduleId", "text", { check: checkModuleID }),
    opt("endpointId", "text", { check: oneLine, at: "capability.endpoint" }),
    opt("traceSessionId", "any"),
    ...parts,
  );

const status: Check = (s) => {
  const n = Number(s);
  return Number.isInteger(n) && n >= 100 && n <= 599 ? undefined : "must be an integer from 100 to 599";
};

const operationShape = shape(
  need("id name cwd", "text"),
  need("command", "texts"),
  need("status", "text", among("running", "completed", "failed")),
  need("stdout stderr", "text"),
  opt("exitCode", "number", { orNull: true }),
  opt("signal", "text", { orNull: true }),
  need("startedAt", "text"),
  opt("completedAt error", "text"),
);
const fileShape = shape(
  need("path name", "text"),
  need("kind", "text", among("file", "directory", "symlink", "other")),
  need("size", "number"),
  opt("modifiedAt", "text"),
  opt("isText", "boolean"),
);
const preemptShape = shape(need("mode", "text", among("ack-and-stop", "ignore", "direct-reply")), need("reason", "text"));
const effectShape = shape(opt("patch", "object"), opt("preempt", "record", { sub: preemptShape }), opt("debug", "texts"));

const shouldRun = shape(need("shouldRun", "boolean"));
const evaluator = (...more: Field[][]) => plugin(need("evaluator", "text", filled), opt("message state options", "object"), ...more);
const fieldCall = (...more: Field[][]) => plugin(need("field", "text", filled), opt("context", "object"), ...more);

function table(): Method[] {
  const rows: Method[] = [];
  const lowLevel = (name: string, params: Shape, result: Shape) =>
    rows.push({ name, family: name.slice(0, name.indexOf(".")), surface: "", target: "", params, result });
  const row = (name: string, surface: string, target: string, params: Shape, result: Shape) =>
    rows.push({ name: "plugin." + name, family: "plugin", surface, target, params, result });

  lowLevel(
    "fs.list",
    low(opt("path rootId", "text"), opt("limit", "number"), opt("includeHidden", "boolean"), opt("ignore", "texts")),
    shape(
      need("root", "object", { apart: true }),
      need("path", "text"),
      need("entries", "records", { sub: fileShape }),
      need("truncated", "boolean"),
      need("totalAfterIgnore", "number"),
    ),
  );
  lowLevel(
    "fs.readText",
    low(need("path", "text"), opt("maxBytes", "number")),
    shape(need("path text", "text"), need("size", "number"), need("truncated", "boolean")),
  );
  lowLevel(
    "fs.writeText",
    low(need("path text", "text"), opt("createDirectories overwrite", "boolean")),
    shape(need("path", "text"), need("bytesWritten", "number"), opt("requestedPath", "text")),
  );
  lowLevel(
    "pty.command.run",
    low(need("command", "text"), opt("args", "texts"), opt("cwd", "text"), opt("env", "textMap"), opt("timeoutMs", "number")),
    shape(
      need("output", "text"),
      need("exitCode", "number", { orNull: true }),
      need("timedOut", "boolean"),
      opt("workspaceExecution workspaceDeltaReceipt", "object"),
    ),
  );
  lowLevel(
    "git.status",
    git(need("cwd", "text")),
    shape(
      need("repo", "object", { apart: true }),
      opt("branch", "text"),
      opt("ahead behind", "number"),
      need("files", "objects"),
      need("raw", "text"),
    ),
  );
  lowLevel("git.diff", git(need("cwd", "text"), opt("path", "text"), opt("staged", "boolean")), shape(need("raw", "text")));
  lowLevel("git.command.run", git(need("cwd", "text"), need("args", "texts")), shape(need("operation", "record", { sub: operationShape })));
  lowLevel("model.status", low(), { ...shape(need("ok", "boolean"), opt("provider", "text")), keepRaw: true });

  row("modules.list", "module", "", low(), shape(need("modules", "records", { sub: moduleShape })));
  row(
    "action.invoke",
    "action",
    "action",
    plugin(need("action", "text", filled), opt("content options", "object")),
    shape(opt("text", "text"), opt("actions", "texts"), opt("values data", "object")),
  );
  row(
    "provider.get",
    "provider",
    "provider",
    plugin(need("provider", "text", filled), opt("state", "object")),
    shape(opt("text", "text"), opt("values data", "object")),
  );
  row(
    "route.call",
    "route",
    "path",
    plugin(
      need("method", "text", among(...verbs)),
      need("path", "text", { check: checkLocalPath }),
      opt("body", "any"),
      opt("query", "queryMap"),
      opt("headers", "headerMap"),
    ),
    shape(need("status", "number", { check: status }), opt("headers", "headerMap"), opt("body", "any")),
  );
  row(
    "asset.get",
    "view",
    "path",
    plugin(need("path", "text", { check: checkAssetPath })),
    shape(
      need("path", "text", { check: checkAssetPath }),
      need("contentType", "text", { check: oneLine }),
      need("bodyBase64", "text", { check: base64 }),
      opt("integrity", "text", { check: oneLine }),
    ),
  );
  row("evaluator.shouldRun", "evaluator", "evaluator", evaluator(), shouldRun);
  row("evaluator.prepare", "evaluator", "evaluator", evaluator(), shape(opt("prepared", "any")));
  row("evaluator.prompt", "evaluator", "evaluator", evaluator(opt("prepared", "any")), shape(need("prompt", "text")));
  row("evaluator.process", "evaluator", "evaluator", evaluator(opt("prepared output", "any")), shape(opt("result", "object")));
  const response = plugin(need("evaluator", "text", filled), opt("context", "object"));
  row("responseHandlerEvaluator.shouldRun", "responseHandlerEvaluator", "evaluator", response, shouldRun);
  row("responseHandlerEvaluator.evaluate", "responseHandlerEvaluator", "evaluator", response, shape(opt("patch", "object")));
  row("responseHandlerFieldEvaluator.shouldRun", "responseHandlerFieldEvaluator", "field", fieldCall(), shouldRun);
  row(
    "responseHandlerFieldEvaluator.parse",
    "responseHandlerFieldEvaluator",
    "field",
    fieldCall(opt("value", "any")),
    shape(opt("value", "any"), opt("softFail", "boolean")),
  );
  row(
    "responseHandlerFieldEvaluator.handle",
    "responseHandlerFieldEvaluator",
    "field",
    fieldCall(opt("value", "any"), opt("parsed", "object")),
    shape(opt("effect", "record", { sub: effectShape })),
  );
  row(
    "lifecycle.call",
    "lifecycle",
    "hook",
    plugin(need("hook", "text", among(...lifecycleHooks)), opt("config", "textMap"), opt("context", "object")),
    shape(need("ok", "boolean")),
  );
  row(
    "event.handle",
    "event",
    "eventName",
    plugin(need("eventName", "text", filled), opt("payload", "object")),
    shape(need("handled", "boolean")),
  );
  row("model.invoke", "model", "modelType", plugin(need("modelType", "text", filled), opt("params", "any")), shape(need("result", "any")));
  row(
    "service.call",
    "service",
    "serviceType",
    plugin(need("serviceType", "text", filled), need("method", "text", { check: serviceMethod }), opt("args", "list")),
    shape(opt("result", "any")),
  );
  row(
    "appBridge.call",
    "appBridge",
    "hook",
    plugin(need("hook", "text", among(...appBridgeHooks)), opt("context", "object")),
    shape(opt("result", "any")),
  );
  return rows;
}

/** The 27 methods of the protocol, by name. */
export const methods: ReadonlyMap<string, Method> = new Map(table().map((m) => [m.name, m]));

// ---- Decoding ----------------------------------------------------------------

/** The bounds of a manifest. */
export const limits = { manifestBytes: 4 << 20, modules: 256, items: 1024, depth: 64 } as const;

/** The largest nesting of a document. */
const maxNesting = 1000;

function describe(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  switch (typeof value) {
    case "boolean":
      return "a boolean";
    case "string":
      return "a string";
    case "number":
      return "a number";
    case "undefined":
      return "nothing";
    default:
      return "an object";
  }
}

class Decoder {
  private readonly items: number;

  /** @param items the largest length of a list, or 0 */
  constructor(items: number) {
    this.items = items;
  }

  fail(at: string, message: string): never {
    throw new WireError("CAPABILITY_DECODE_FAILED", `${at}: ${message}`, at);
  }

  /** Returns an object without unknown members. */
  record(s: Shape, value: unknown, at: string): Record<string, unknown> {
    if (!isObject(value)) this.fail(at, `must be an object, not ${describe(value)}`);
    const out: Record<string, unknown> = {};
    for (const f of s.fields) {
      let member = Object.hasOwn(value, f.name) ? value[f.name] : undefined;
      if (member === undefined && s.alias?.[1] === f.name && Object.hasOwn(value, s.alias[0])) member = value[s.alias[0]];
      const decoded = this.field(f, member, at);
      if (decoded !== undefined) out[f.name] = decoded;
    }
    if (s.keepRaw) out.raw = value;
    return out;
  }

  private field(f: Field, value: unknown, path: string): unknown {
    const at = f.at ?? (f.apart || f.kind === "record" || f.kind === "recordMap" ? `${path}.${f.name}` : path);
    if (value === undefined) return f.optional ? undefined : this.fail(at, `"${f.name}" is missing`);
    if (f.orNull && value === null) return null;
    const wanted = (what: string): never => this.fail(at, `"${f.name}" must be ${what}, not ${describe(value)}`);
    switch (f.kind) {
      case "any":
        return value;
      case "text": {
        if (typeof value !== "string") return wanted("a string");
        const wrong = f.check?.(value);
        if (wrong) this.fail(at, `"${f.name}" ${wrong}`);
        return f.rewrite ? f.rewrite(value) : value;
      }
      case "number": {
        if (typeof value !== "number") return wanted("a number");
        if (!Number.isFinite(value)) this.fail(at, `"${f.name}" is not a finite number`);
        const wrong = f.check?.(String(value));
        if (wrong) this.fail(at, `"${f.name}" ${wrong}`);
        return value;
      }
      case "boolean":
        return typeof value === "boolean" ? value : wanted("a boolean");
      case "object":
        return isObject(value) ? value : wanted("an object");
      case "record":
        return this.record(f.sub!, value, at);
      case "list":
        return Array.isArray(value) ? value : wanted("an array");
      case "texts":
      case "objects":
      case "records":
        return Array.isArray(value) ? this.list(f, value, f.kind === "records" ? `${path}.${f.name}` : at) : wanted("an array");
      default:
        if (!isObject(value)) return wanted("an object");
        if (f.kind === "recordMap") {
          return Object.fromEntries(Object.entries(value).map(([name, v]) => [name, this.record(f.sub!, v, `${at}.${name}`)]));
        }
        for (const [name, v] of Object.entries(value)) this.member(f, name, v, at);
        return value;
    }
  }

  private list(f: Field, value: unknown[], at: string): unknown[] {
    const most = f.sub === moduleShape ? Math.min(this.items, limits.modules) : this.items;
    if (most > 0 && value.length > most) this.fail(at, `"${f.name}" has more than ${most} items`);
    if (f.nonEmpty && value.length === 0) this.fail(at, `"${f.name}" must not be empty`);
    if (f.kind === "records") return value.map((item) => this.record(f.sub!, item, at));
    const seen = new Set<unknown>();
    for (const item of value) {
      if (f.kind === "objects" ? !isObject(item) : typeof item !== "string") {
        this.fail(at, `"${f.name}" must hold ${f.kind === "objects" ? "objects" : "strings"}, not ${describe(item)}`);
      }
      const wrong = typeof item === "string" ? f.check?.(item) : undefined;
      if (wrong) this.fail(at, `"${f.name}" has an item that ${wrong}: ${JSON.stringify(item)}`);
      if (f.unique && seen.has(item)) this.fail(at, `"${f.name}" names ${JSON.stringify(item)} twice`);
      seen.add(item);
    }
    return value;
  }

  private member(f: Field, name: string, value: unknown, at: string): void {
    switch (f.kind) {
      case "scalarMap":
        if ((typeof value === "object" && value !== null) || (typeof value === "number" && !Number.isFinite(value))) {
          this.fail(at, `"${f.name}" must hold strings, finite numbers, booleans or null, not ${describe(value)}`);
        }
        return;
      case "queryMap":
        if (name === "" || !singleLine(name)) this.fail(at, `"${f.name}" has a name that is empty or holds CR, LF or NUL`);
        for (const one of Array.isArray(value) ? (value as unknown[]) : [value]) {
          if (typeof one !== "string") this.fail(at, `"${f.name}" must hold strings or arrays of strings, not ${describe(one)}`);
          if (!singleLine(one as string)) this.fail(at, `"${f.name}" holds a value with CR, LF or NUL`);
        }
        return;
      default: {
        if (typeof value !== "string") return this.fail(at, `"${f.name}" must hold strings, not ${describe(value)}`);
        const wrong = f.kind === "headerMap" ? checkHeader(name, value) : undefined;
        if (wrong) this.fail(at, `"${f.name}" ${wrong}`);
      }
    }
  }
}

function lookup(method: string): Method {
  const m = methods.get(method);
  if (!m)
    throw new WireError("CAPABILITY_UNAVAILABLE", `the protocol has no method ${JSON.stringify(method)}`, method, {
      code: "unknown_capability",
    });
  return m;
}

function withDetails<T>(details: Record<string, unknown>, decode: () => T): T {
  try {
    return decode();
  } catch (thrown) {
    if (thrown instanceof WireError && !thrown.details) throw new WireError(thrown.code, thrown.message, thrown.at, details);
    throw thrown;
  }
}

/** Returns the parameters of a call without unknown members. Parameters that are absent or not an object become {}. */
export function decodeParams(method: string, params: unknown): Record<string, unknown> {
  const m = lookup(method);
  return withDetails({ code: "invalid_input" }, () => new Decoder(0).record(m.params, isObject(params) ? params : {}, method));
}

/** Returns the result of a call without unknown members. Error: CAPABILITY_DECODE_FAILED with the place of the fault. */
export function decodeResult(method: string, result: unknown): Record<string, unknown> {
  const m = lookup(method);
  return withDetails({ code: "failed", reason: "decode_failed" }, () => {
    const d = new Decoder(m.surface === "module" ? limits.items : 0);
    if (result === undefined) d.fail(method, "the result is missing");
    return d.record(m.result, result, method);
  });
}

/** Returns a manifest without unknown members. Error: CAPABILITY_DECODE_FAILED with the place of the fault. */
export function decodeModule(manifest: unknown): Record<string, unknown> {
  return withDetails({ code: "failed", reason: "decode_failed" }, () =>
    new Decoder(limits.items).record(moduleShape, manifest, "plugin.modules.list.modules"),
  );
}

/** A request of the protocol before its parameters are checked. */
export interface Request {
  method: string;
  params: unknown;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Parses the body of a call. It refuses text that is not UTF-8, nesting of more than 1,000 levels, and a member of the
 * request or its parameters that occurs twice, because a proxy may have checked the other one.
 */
export function parseRequest(body: Uint8Array, path: string): Request {
  const bad = (message: string): WireError => {
    const e = new WireError("CAPABILITY_DECODE_FAILED", message, path, { code: "invalid_input" });
    e.status = 400;
    return e;
  };
  let value: unknown;
  try {
    const text = utf8.decode(body);
    const wrong = checkStructure(text);
    if (wrong) throw bad(wrong);
    value = JSON.parse(text);
  } catch (thrown) {
    throw thrown instanceof WireError ? thrown : bad("the body is not JSON");
  }
  if (!isObject(value)) throw bad("the request must be a JSON object");
  if (typeof value.method !== "string") throw bad('the request needs a string "method"');
  return { method: value.method, params: value.params };
}

/** Reports what is wrong with the nesting or the member names of the two outer levels of a JSON text. */
function checkStructure(text: string): string | undefined {
  const names: (Set<string> | undefined)[] = [];
  let expectName = false;
  for (let i = 0; i < text.length; i++) {
    switch (text.charCodeAt(i)) {
      case 0x7b: // {
      case 0x5b: // [
        if (names.length >= maxNesting) return `the body has more than ${maxNesting} levels`;
        names.push(text[i] === "{" ? new Set() : undefined);
        expectName = text[i] === "{";
        break;
      case 0x7d: // }
      case 0x5d: // ]
        names.pop();
        expectName = false;
        break;
      case 0x2c: // ,
        expectName = names.at(-1) !== undefined;
        break;
      case 0x22: {
        // "
        const start = i;
        for (i++; i < text.length && text.charCodeAt(i) !== 0x22; i++) if (text.charCodeAt(i) === 0x5c) i++;
        const seen = names.at(-1);
        if (expectName && seen && names.length <= 2) {
          const name = JSON.parse(text.slice(start, i + 1)) as string;
          if (seen.has(name)) return `${JSON.stringify(name)} is given twice`;
          seen.add(name);
        }
        expectName = false;
      }
    }
  }
  return undefined;
}

/** Reports whether a path matches a declared one: ":name" matches one segment, ":name*" all that follow. */
export function matchRoute(declared: string, path: string): boolean {
  const want = declared.split("/");
  const have = path.split("/");
  for (const [i, w] of want.entries()) {
    if (w.startsWith(":") && w.endsWith("*")) return true;
    const segment = have[i];
    if (segment === undefined || (w.startsWith(":") ? segment === "" : w !== segment)) return false;
  }
  return want.length === have.length;
}
