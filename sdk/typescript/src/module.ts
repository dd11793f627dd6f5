import { createHash } from "node:crypto";
import { isObject, JunctorError } from "./errors.js";
import type { Provenance } from "./provenance.js";
import { appBridgeHooks, checkAssetPath, cleanAssetPath, decodeModule, lifecycleHooks, WireError } from "./router.js";
import { checkInput, type FromSchema, type ObjectSchema } from "./schema.js";

/** A JSON object. */
export type JSONObject = Record<string, unknown>;

/** A value, or a promise of one. */
export type Awaitable<T> = T | Promise<T>;

/** What a handler receives beside its input. */
export interface CallContext {
  /** Aborted when the caller has disconnected. */
  signal: AbortSignal;
  /** Id of the module that is called. */
  moduleId: string;
}

/**
 * One module: its names, its items and the functions that do the work. Only id and name are required. The endpoint reads
 * it once, so later changes have no effect.
 */
export interface Module {
  /** Name on the wire: letters, digits, '.', '_' and '-'. */
  id: string;
  /** Name in lists of agents, such as "@you/greeter". */
  name: string;
  version?: string;
  description?: string;
  /** Orders modules where order matters. If absent, the agent's default applies. */
  priority?: number;
  /** The agent contexts in which the module is useful. */
  contexts?: string[];
  /** The settings with their defaults. Agents pass changed ones to lifecycle.applyConfig as strings. */
  config?: Record<string, string | number | boolean | null>;
  /** JSON Schema of config. */
  schema?: JSONObject;
  metadata?: JSONObject;
  actions?: Action[];
  providers?: Provider[];
  evaluators?: Evaluator[];
  responseEvaluators?: ResponseEvaluator[];
  fieldEvaluators?: FieldEvaluator[];
  events?: EventHandler[];
  models?: Model[];
  services?: Service[];
  componentTypes?: ComponentType[];
  widgets?: Widget[];
  app?: App;
  appBridge?: AppBridge;
  lifecycle?: Lifecycle;
  routes?: Route[];
  views?: View[];
  /** Further files that views load. */
  assets?: Asset[];
  /** The signed origin of the module, see signModule. */
  provenance?: Provenance;
}

/** Something that an agent can do. {@link action} makes one with typed input. */
export interface Action {
  name: string;
  description: string;
  descriptionCompressed?: string;
  /** Other names by which models may find it. */
  similes?: string[];
  /** JSON Schema of the content, or a list of parameters for elizaOS; passed on unchanged. */
  parameters?: unknown;
  /** Executes the action. Content and options are JSON objects. */
  handle: (content: JSONObject, context: CallContext & { options: JSONObject }) => Awaitable<ActionResult | string | void>;
}

/** The result of an action. A string is the same as { text }. */
export interface ActionResult {
  text?: string;
  /** Actions that the agent may take next. */
  actions?: string[];
  values?: JSONObject;
  data?: JSONObject;
}

/** The declaration of an action with typed input. */
export interface TypedAction<S extends ObjectSchema> extends Omit<Action, "parameters" | "handle"> {
  /** JSON Schema of the input. */
  parameters: S;
  /** Executes the action with input that fits the schema. */
  handle: (
    input: FromSchema<S>,
    context: CallContext & { content: JSONObject; options: JSONObject },
  ) => Awaitable<ActionResult | string | void>;
}

/**
 * Returns an action whose input is checked against its schema. The input is what the caller filled in: options.parameters
 * of an elizaOS agent, else the content. The manifest lists the parameters in the form that both kinds of caller read.
 */
export function action<const S extends ObjectSchema>(declared: TypedAction<S>): Action {
  const { parameters, handle, ...rest } = declared;
  const required = parameters.required ?? [];
  return {
    ...rest,
    parameters: Object.entries(parameters.properties ?? {}).map(([name, schema]) => ({
      name,
      description: schema.description ?? name,
      required: required.includes(name),
      schema,
    })),
    handle: (content, context) => {
      const filled = context.options.parameters;
      const input = isObject(filled) ? filled : content;
      checkInput(parameters, input);
      return handle(input as FromSchema<S>, { ...context, content });
    },
  };
}

/** Supplies an agent with context about the current state. */
export interface Provider {
  name: string;
  description?: string;
  descriptionCompressed?: string;
  dynamic?: boolean;
  private?: boolean;
  /** Returns the context for the agent's state. */
  get: (state: JSONObject, context: CallContext) => Awaitable<Omit<ActionResult, "actions"> | string>;
}

/** The input of an evaluator's phase. */
export interface EvaluatorCall {
  message: JSONObject;
  state: JSONObject;
  options: JSONObject;
  /** The result of prepare, in later phases. */
  prepared?: unknown;
  /** The output of the model, in process. */
  output?: unknown;
}

/** Examines a message after it was answered. A phase whose function is absent has a default. */
export interface Evaluator {
  name: string;
  description: string;
  prompt: string;
  /** JSON Schema of the model's output. */
  schema: JSONObject;
  similes?: string[];
  providers?: string[];
  priority?: number;
  modelType?: string;
  /** If absent, always. */
  shouldRun?: (call: EvaluatorCall, context: CallContext) => Awaitable<boolean>;
  prepare?: (call: EvaluatorCall, context: CallContext) => Awaitable<unknown>;
  /** If absent, the prompt of the declaration. */
  buildPrompt?: (call: EvaluatorCall, context: CallContext) => Awaitable<string>;
  process?: (call: EvaluatorCall, context: CallContext) => Awaitable<JSONObject | void>;
}

/** Adds to an agent's response. */
export interface ResponseEvaluator {
  name: string;
  description?: string;
  priority?: number;
  /** If absent, always. */
  shouldRun?: (about: JSONObject, context: CallContext) => Awaitable<boolean>;
  /** Returns a patch of the response. */
  evaluate?: (about: JSONObject, context: CallContext) => Awaitable<JSONObject | void>;
}

/**
 * The input of a field evaluator. `value` is the model's value of the field; handle reads it, because elizaOS does not wait
 * for the parse of an endpoint. `parsed` is what the caller has besides: for elizaOS the model's whole answer, for junctor
 * the object that parse returned.
 */
export interface FieldCall {
  context: JSONObject;
  value?: unknown;
  parsed?: JSONObject;
}

/** The consequence of a field: a patch of the response, an end of the turn, lines for the developer. */
export interface FieldEffect {
  patch?: JSONObject;
  preempt?: { mode: "ack-and-stop" | "ignore" | "direct-reply"; reason: string };
  debug?: string[];
}

/** Reads one field of a model's response. */
export interface FieldEvaluator {
  name: string;
  description: string;
  /** JSON Schema of the field. */
  schema: JSONObject;
  priority?: number;
  /** If absent, always. */
  shouldRun?: (call: FieldCall, context: CallContext) => Awaitable<boolean>;
  /** Returns the corrected value, or undefined if the model's value is unusable. If absent, every value is used unchanged. */
  parse?: (call: FieldCall, context: CallContext) => Awaitable<unknown>;
  handle?: (call: FieldCall, context: CallContext) => Awaitable<FieldEffect | void>;
}

/** Handles events of an agent. */
export interface EventHandler {
  name: string;
  /** Returns false if it did not handle the event. */
  handle: (payload: JSONObject, context: CallContext) => Awaitable<boolean | void>;
}

/** A model that agents can use. Params and result are any JSON. */
export interface Model {
  type: string;
  priority?: number;
  invoke: (params: unknown, context: CallContext) => Awaitable<unknown>;
}

/** A set of methods under one type. Only these methods can be called. */
export interface Service {
  type: string;
  description?: string;
  config?: JSONObject;
  methods: Record<string, (args: unknown[], context: CallContext) => Awaitable<unknown>>;
}

/** Data that agents store for the module. */
export interface ComponentType {
  name: string;
  /** An object with type, properties, items, required, enumValues and description. */
  schema: JSONObject;
}

/** The audience of a view, widget, app or tab. Default is release. */
export type ViewKind = "release" | "system" | "developer" | "preview";

/** A part of a view that the agent's pages show. */
export interface Widget {
  id: string;
  pluginId?: string;
  /** A slot that routers of every generation support. */
  slot: "chat-sidebar" | "character" | "nav-page";
  label: string;
  icon?: string;
  order?: number;
  defaultEnabled?: boolean;
  navGroup?: string;
  componentExport?: string;
  kind?: ViewKind;
}

/** A page of the app in the agent's navigation. */
export interface NavTab {
  id: string;
  label: string;
  path: string;
  icon?: string;
  order?: number;
  group?: string;
  componentExport?: string;
  kind?: ViewKind;
}

/** How the module presents itself as an application. */
export interface App {
  displayName?: string;
  category?: string;
  launchType?: string;
  /** Absolute, http or https. */
  launchUrl?: string;
  icon?: string;
  runtimePlugin?: string;
  bridgeExport?: string;
  capabilities?: string[];
  minPlayers?: number;
  maxPlayers?: number;
  /** Objects of the router protocol, passed on unchanged. */
  viewer?: JSONObject;
  session?: JSONObject;
  uiExtension?: JSONObject;
  visibleInAppStore?: boolean;
  navTabs?: NavTab[];
  kind?: ViewKind;
}

/** The hooks of a module that is an application. */
export type AppBridge = { [H in (typeof appBridgeHooks)[number]]?: (about: JSONObject, context: CallContext) => Awaitable<unknown> };

/** The hooks that an agent calls as it loads, configures and unloads the module. */
export type Lifecycle = {
  [H in (typeof lifecycleHooks)[number]]?: (config: Record<string, string>, about: JSONObject, context: CallContext) => Awaitable<void>;
};

/** An ES module that the agent's page imports. */
export interface View {
  id: string;
  label: string;
  type?: "gui" | "tui";
  /** The ES module. It is served at path, by default /assets/<view id>.js, and its integrity is computed. */
  bundle?: string | Uint8Array;
  path?: string;
  /** By default text/javascript. */
  contentType?: string;
  /** The address of a bundle that another server serves, in place of bundle. */
  url?: string;
  kind?: ViewKind;
}

/** A further file that a view loads. */
export interface Asset {
  path: string;
  contentType: string;
  body: string | Uint8Array;
}

/** One request of a route. */
export interface RouteRequest {
  method: string;
  path: string;
  /** The decoded values of the path's parameters. */
  params: Record<string, string>;
  query: Record<string, string | string[]>;
  headers: Record<string, string>;
  /** Any JSON; undefined if absent. */
  body: unknown;
}

/** The response of a route. The default status is 200. */
export interface RouteResponse {
  status?: number;
  headers?: Record<string, string>;
  body?: unknown;
}

/**
 * An HTTP route below the agent's address. The path may have parameters: ":name" matches one segment, a last ":name*" all
 * that follow. If several routes match, the first one is called.
 */
export interface Route {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  name?: string;
  description?: string;
  /** Allows every caller. It gives the reason, and for methods other than GET why the route may change something. */
  public?: { reason: string; write?: string };
  handle: (request: RouteRequest, context: CallContext) => Awaitable<RouteResponse>;
}

/** A file in the form of plugin.asset.get. */
export interface File {
  path: string;
  contentType: string;
  bodyBase64: string;
  integrity: string;
}

/** Returns the integrity value of a file: "sha256-" and its digest in base64. */
export function integrity(body: Uint8Array): string {
  return "sha256-" + createHash("sha256").update(body).digest("base64");
}

function invalid(id: string, message: string, cause?: unknown): JunctorError {
  return new JunctorError("invalid_input", `module ${JSON.stringify(id)}: ${message}`, {
    reason: "invalid_module",
    hint: "correct the declaration of the module",
    cause,
  });
}

/** Returns an object without the members that are undefined or functions. */
function plain(value: object, ...without: string[]): JSONObject {
  return Object.fromEntries(
    Object.entries(value).filter(([name, v]) => v !== undefined && typeof v !== "function" && !without.includes(name)),
  );
}

function audience(item: { kind?: ViewKind }): JSONObject {
  const kind = item.kind ?? "release";
  return { developerOnly: kind === "developer", viewKind: kind };
}

/** Returns the path of a view's bundle. */
const bundlePath = (v: View): string => v.path ?? `/assets/${v.id}.js`;

const bytesOf = (body: string | Uint8Array): Uint8Array => (typeof body === "string" ? new TextEncoder().encode(body) : body);

/** Returns the names of the hooks that are set, in the order of the protocol. */
function hooks(declared: Partial<Record<string, unknown>> | undefined, order: readonly string[]): JSONObject | undefined {
  const set = order.filter((name) => declared?.[name]);
  return set.length > 0 ? { hooks: set } : undefined;
}

/**
 * Returns the manifest of a module as routers receive it. Error: invalid_input, reason invalid_module, which names the
 * module and the field.
 */
export function manifestOf(m: Module): JSONObject {
  check(m);
  const manifest = {
    ...plain(m, "assets", "responseEvaluators", "fieldEvaluators", "provenance"),
    actions: m.actions?.map((x) => plain(x)),
    providers: m.providers?.map((x) => plain(x)),
    evaluators: m.evaluators?.map((x) => ({ ...plain(x), hasPrepare: !!x.prepare, hasProcessor: !!x.process })),
    responseHandlerEvaluators: m.responseEvaluators?.map((x) => plain(x)),
    responseHandlerFieldEvaluators: m.fieldEvaluators?.map((x) => ({ ...plain(x), hasParse: !!x.parse, hasHandle: !!x.handle })),
    events: m.events?.map((x) => ({ eventName: x.name })),
    models: m.models?.map((x) => ({ ...plain(x, "type"), modelType: x.type })),
    services: m.services?.map((x) => ({
      serviceType: x.type,
      ...(x.description !== undefined && { capabilityDescription: x.description }),
      ...(x.config && { config: x.config }),
      methods: Object.keys(x.methods),
    })),
    componentTypes: m.componentTypes?.map((x) => plain(x)),
    widgets: m.widgets?.map((x) => ({ ...plain(x, "kind"), ...audience(x) })),
    app: m.app && {
      ...plain(m.app, "kind", "navTabs"),
      ...audience(m.app),
      ...(m.app.navTabs && { navTabs: m.app.navTabs.map((t) => ({ ...plain(t, "kind"), ...audience(t) })) }),
    },
    appBridge: hooks(m.appBridge, appBridgeHooks),
    lifecycle: hooks(m.lifecycle, lifecycleHooks),
    routes: m.routes?.map((x) => ({
      ...plain(x, "public"),
      ...(x.public && {
        public: true,
        publicReason: x.public.reason,
        ...(x.public.write !== undefined && { publicWrite: x.public.write }),
      }),
    })),
    views: m.views?.map((x) => ({
      id: x.id,
      label: x.label,
      ...(x.type && { viewType: x.type }),
      ...(x.url !== undefined || x.bundle === undefined
        ? { bundleUrl: x.url }
        : { bundlePath: bundlePath(x), contentType: x.contentType ?? "text/javascript", integrity: integrity(bytesOf(x.bundle)) }),
      viewKind: x.kind ?? "release",
    })),
    provenance: m.provenance,
  };
  try {
    return decodeModule(JSON.parse(JSON.stringify(manifest)));
  } catch (cause) {
    throw invalid(m.id, cause instanceof WireError ? "is not what routers accept: " + cause.message : "cannot be written as JSON", cause);
  }
}

/** Throws for faults that the decoder of manifests cannot detect. */
function check(m: Module): void {
  const handlers: [string, { handler: unknown; name: string }[]][] = [
    ["actions", (m.actions ?? []).map((x) => ({ handler: x.handle, name: x.name }))],
    ["providers", (m.providers ?? []).map((x) => ({ handler: x.get, name: x.name }))],
    ["evaluators", (m.evaluators ?? []).map((x) => ({ handler: check, name: x.name }))],
    ["responseEvaluators", (m.responseEvaluators ?? []).map((x) => ({ handler: check, name: x.name }))],
    ["fieldEvaluators", (m.fieldEvaluators ?? []).map((x) => ({ handler: check, name: x.name }))],
    ["events", (m.events ?? []).map((x) => ({ handler: x.handle, name: x.name }))],
    ["models", (m.models ?? []).map((x) => ({ handler: x.invoke, name: x.type }))],
    [
      "services",
      (m.services ?? []).map((x) => ({
        handler: Object.values(x.methods).every((f) => typeof f === "function") ? check : undefined,
        name: x.type,
      })),
    ],
    ["componentTypes", (m.componentTypes ?? []).map((x) => ({ handler: check, name: x.name }))],
    ["widgets", (m.widgets ?? []).map((x) => ({ handler: check, name: x.id }))],
    ["views", (m.views ?? []).map((x) => ({ handler: check, name: x.id }))],
    ["routes", (m.routes ?? []).map((x) => ({ handler: x.handle, name: `${x.method} ${x.path}` }))],
  ];
  for (const [list, items] of handlers) {
    const names = new Set<string>();
    for (const [i, item] of items.entries()) {
      if (typeof item.handler !== "function") throw invalid(m.id, `${list}[${i}] has no function for ${JSON.stringify(item.name)}`);
      if (names.has(item.name)) throw invalid(m.id, `${list}[${i}] repeats ${JSON.stringify(item.name)}`);
      names.add(item.name);
    }
  }
  for (const [i, r] of (m.routes ?? []).entries()) {
    if (!r.public) continue;
    if (!r.public.reason.trim())
      throw invalid(m.id, `routes[${i}].public.reason is blank: the newest routers refuse a public route without a reason`);
    if (r.method !== "GET" && !r.public.write?.trim())
      throw invalid(m.id, `routes[${i}].public.write is blank: a public route that may change something needs a reason`);
  }
  for (const [i, w] of (m.widgets ?? []).entries()) {
    if (!["chat-sidebar", "character", "nav-page"].includes(w.slot))
      throw invalid(m.id, `widgets[${i}].slot is not a slot of every router; use chat-sidebar, character or nav-page`);
  }
  for (const [i, v] of (m.views ?? []).entries()) {
    if ((v.url === undefined) === (v.bundle === undefined)) throw invalid(m.id, `views[${i}] needs a bundle or a url, and not both`);
    if (v.url === undefined && !/\.m?js$/.test(bundlePath(v)))
      throw invalid(m.id, `views[${i}].path does not end in .js or .mjs, as routers require`);
  }
}

/** Returns the files of a module by path. */
export function filesOf(m: Module): Map<string, File> {
  const files = new Map<string, File>();
  const add = (field: string, path: string, contentType: string, body: string | Uint8Array) => {
    const wrong = checkAssetPath(path);
    if (wrong) throw invalid(m.id, `${field}.path ${wrong}`);
    if (!contentType.trim() || /[\r\n\0]/.test(contentType)) throw invalid(m.id, `${field}.contentType must be one line of text`);
    const clean = cleanAssetPath(path);
    if (files.has(clean)) throw invalid(m.id, `${field}.path repeats ${JSON.stringify(clean)}`);
    const bytes = bytesOf(body);
    files.set(clean, { path: clean, contentType, bodyBase64: Buffer.from(bytes).toString("base64"), integrity: integrity(bytes) });
  };
  for (const [i, v] of (m.views ?? []).entries()) {
    if (v.bundle !== undefined) add(`views[${i}]`, bundlePath(v), v.contentType ?? "text/javascript", v.bundle);
  }
  for (const [i, a] of (m.assets ?? []).entries()) add(`assets[${i}]`, a.path, a.contentType, a.body);
  return files;
}
