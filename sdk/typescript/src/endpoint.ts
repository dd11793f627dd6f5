import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type ErrorCode, isObject, JunctorError } from "./errors.js";
import { checkToken } from "./internal.js";
import {
  type CallContext,
  type EvaluatorCall,
  type FieldCall,
  type File,
  filesOf,
  type JSONObject,
  manifestOf,
  type Module,
  type Route,
} from "./module.js";
import {
  checkAssetPath,
  checkModuleID,
  cleanAssetPath,
  decodeParams,
  decodeResult,
  limits,
  matchRoute,
  methods,
  parseRequest,
  WireError,
} from "./router.js";

/** Options of an {@link Endpoint}. */
export interface EndpointOptions {
  /** Bearer token of the callers. Without one every caller is accepted; then listen on loopback only. */
  token?: string;
  /** Largest body of a call in bytes; default 4 MiB. */
  maxBodyBytes?: number;
  /** Largest result of a call in bytes; default 32 MiB. */
  maxResultBytes?: number;
  /** Time to receive a body, in milliseconds, plus one second for every 64 KiB of the limit; default 30 s. */
  bodyTimeoutMs?: number;
  /** Calls that run at once; default 256. Further ones are refused with the code overloaded. */
  maxCalls?: number;
  /** Receives the errors that callers do not see, with the item that failed. By default they are written to the console. */
  onError?: (error: unknown, target: string) => void;
}

/** A listening endpoint. */
export interface Listening {
  /** The base URL, for `junctor connect`. */
  url: string;
  /** Stops listening, and waits until running calls have ended. */
  close(): Promise<void>;
}

/** One HTTP request, of node:http or of fetch. */
interface Incoming {
  method: string;
  /** The path as it was sent, without the query. */
  path: string;
  authorization: string;
  ifNoneMatch: string;
  /** Whether a browser sent it: no page can leave out or change the headers that show it. */
  page: boolean;
  signal: AbortSignal;
  body(): Promise<Uint8Array>;
}

interface Outgoing {
  status: number;
  headers: Record<string, string>;
  body: string | Uint8Array;
}

type Serve = (params: JSONObject, context: CallContext) => Promise<unknown>;

const pathAvailability = "/v1/capabilities";
const pathInvoke = "/v1/capabilities/invoke";
const pathAssets = "/v1/capabilities/assets/";

/** The code of the protocol and the HTTP status for each code. */
const codes: Record<ErrorCode, [code: WireError["code"], status: number]> = {
  unauthenticated: ["CAPABILITY_UNAVAILABLE", 401],
  denied: ["CAPABILITY_UNAVAILABLE", 403],
  approval_required: ["CAPABILITY_UNAVAILABLE", 403],
  invalid_input: ["CAPABILITY_DECODE_FAILED", 400],
  too_large: ["CAPABILITY_DECODE_FAILED", 413],
  unknown_capability: ["CAPABILITY_UNAVAILABLE", 404],
  not_found: ["CAPABILITY_UNAVAILABLE", 404],
  conflict: ["CAPABILITY_REQUEST_FAILED", 409],
  selection_required: ["CAPABILITY_UNAVAILABLE", 409],
  slot_conflict: ["CAPABILITY_UNAVAILABLE", 409],
  unavailable: ["CAPABILITY_UNAVAILABLE", 503],
  overloaded: ["CAPABILITY_UNAVAILABLE", 429],
  timeout: ["CAPABILITY_REQUEST_FAILED", 504],
  cancelled: ["CAPABILITY_REQUEST_FAILED", 499],
  failed: ["CAPABILITY_REQUEST_FAILED", 502],
  internal: ["CAPABILITY_REQUEST_FAILED", 500],
};

/** Returns a failure in the form of the protocol. */
function wireOf(thrown: unknown, at: string): WireError {
  if (thrown instanceof WireError) return thrown;
  if (thrown instanceof JunctorError) {
    const { code, message, ...rest } = thrown.toJSON();
    const { details, ...fields } = rest;
    return new WireError(codes[thrown.code][0], String(message), at, { ...(isObject(details) ? details : {}), code, ...fields });
  }
  return new WireError("CAPABILITY_REQUEST_FAILED", `${at} failed`, at, { code: "failed" });
}

/** Returns the HTTP status of a failure that has no envelope with status 200. */
function statusOf(e: WireError): number {
  const code = e.details?.code;
  return typeof code === "string" && Object.hasOwn(codes, code) ? codes[code as ErrorCode][1] : 502;
}

/**
 * An endpoint serves modules on the capability-router protocol. Handlers are called concurrently. An error of a handler that is
 * a JunctorError is sent to the caller; the text of any other error stays in this process.
 */
export class Endpoint {
  /** The ids of the modules, in the order they were given. */
  readonly moduleIds: readonly string[];
  readonly #list: string;
  readonly #items = new Map<string, Serve>();
  readonly #token: Buffer | undefined;
  readonly #options: Required<Omit<EndpointOptions, "token">>;
  #running = 0;

  /**
   * Returns an endpoint that serves the modules. Error: invalid_input, reason invalid_module, with the module and the field in
   * its text.
   */
  constructor(modules: Module | Module[], options: EndpointOptions = {}) {
    const all = Array.isArray(modules) ? modules : [modules];
    if (all.length === 0) throw new JunctorError("invalid_input", "an endpoint needs at least one module", { reason: "invalid_module" });
    const token = checkToken(options.token ?? "");
    if (options.token !== undefined && token === "") {
      throw new JunctorError("invalid_input", "the token is empty, so that every caller would be accepted", {
        hint: "leave token out to allow that",
      });
    }
    this.#token = token ? sha256(token) : undefined;
    this.#options = {
      maxBodyBytes: options.maxBodyBytes ?? 4 << 20,
      maxResultBytes: options.maxResultBytes ?? 32 << 20,
      bodyTimeoutMs: options.bodyTimeoutMs ?? 30_000,
      maxCalls: options.maxCalls ?? 256,
      onError: options.onError ?? ((error, target) => console.error(`junctor: ${target} failed:`, error)),
    };
    this.moduleIds = all.map((m) => m.id);
    for (const [i, id] of this.moduleIds.entries()) {
      if (this.moduleIds.indexOf(id) !== i)
        throw new JunctorError("invalid_input", `module ${JSON.stringify(id)} is given twice`, { reason: "invalid_module" });
    }
    const list = { modules: all.map(manifestOf) };
    this.#list = JSON.stringify(list);
    if (this.#list.length > limits.manifestBytes || all.length > limits.modules) {
      throw new JunctorError("invalid_input", "the modules together are larger than routers accept", {
        reason: "invalid_module",
        hint: "spread the modules over several endpoints",
      });
    }
    for (const m of all) this.#register(m, filesOf(m));
  }

  /** Serves one request of fetch. Use it in servers that have Request and Response. */
  readonly fetch = async (request: globalThis.Request): Promise<Response> => {
    const answer = await this.#serve({
      method: request.method,
      path: new URL(request.url).pathname,
      authorization: request.headers.get("authorization") ?? "",
      ifNoneMatch: request.headers.get("if-none-match") ?? "",
      page: request.headers.has("origin") || request.headers.has("sec-fetch-site"),
      signal: request.signal,
      body: () => this.#read(request.body ?? [], Number(request.headers.get("content-length") ?? 0)),
    });
    const empty = request.method === "HEAD" || answer.status === 304;
    return new Response(empty ? null : (answer.body as BodyInit), { status: answer.status, headers: answer.headers });
  };

  /** Serves one request of node:http. Pass it to createServer. */
  readonly handler = (req: IncomingMessage, res: ServerResponse): void => {
    const gone = new AbortController();
    res.once("close", () => {
      if (!res.writableFinished) gone.abort(new JunctorError("cancelled", "the caller has disconnected"));
    });
    const answered = this.#serve({
      method: req.method ?? "GET",
      path: (req.url ?? "/").split("?", 1)[0] ?? "/",
      authorization: req.headers.authorization ?? "",
      ifNoneMatch: req.headers["if-none-match"] ?? "",
      page: req.headers.origin !== undefined || req.headers["sec-fetch-site"] !== undefined,
      signal: gone.signal,
      body: () => this.#read(req, Number(req.headers["content-length"] ?? 0)),
    });
    void answered.then((answer) => {
      if (res.destroyed) return;
      // What was not read of a body must not be taken for the next request.
      if (!req.complete) res.setHeader("connection", "close");
      res.writeHead(answer.status, { ...answer.headers, "content-length": Buffer.byteLength(answer.body) });
      res.end(req.method === "HEAD" ? undefined : answer.body);
    });
  };

  /**
   * Listens for callers. Error: invalid_input for an address that others can reach without a token; conflict if the address is
   * in use.
   */
  async listen(options: { host?: string; port?: number } = {}): Promise<Listening> {
    const { host = "127.0.0.1", port = 0 } = options;
    if (!this.#token && !["127.0.0.1", "::1", "localhost"].includes(host)) {
      throw new JunctorError("invalid_input", "an endpoint that others can reach needs a token", {
        hint: "pass token, or listen on 127.0.0.1",
      });
    }
    const server = createServer({ requestTimeout: 5 * 60_000, headersTimeout: 10_000, maxHeaderSize: 32 << 10 }, this.handler);
    await new Promise<void>((resolve, reject) => {
      server.once("error", (cause) => reject(new JunctorError("conflict", `the endpoint cannot listen on ${host}:${port}`, { cause })));
      server.listen(port, host, resolve);
    });
    const address = server.address();
    const bound = typeof address === "object" && address !== null ? address.port : port;
    return {
      url: `http://${host.includes(":") ? `[${host}]` : host}:${bound}`,
      close: () =>
        new Promise((resolve) => {
          server.close(() => resolve());
          server.closeIdleConnections();
        }),
    };
  }

  // ---- HTTP ------------------------------------------------------------------

  async #serve(req: Incoming): Promise<Outgoing> {
    try {
      const refused = this.#authenticate(req);
      if (refused) return refused;
      if (req.path === pathInvoke && req.method === "POST") return await this.#invoke(req);
      if (req.path === pathAvailability && req.method === "GET") {
        const capabilities = { fs: false, pty: false, git: false, model: false, plugin: true };
        return json(200, JSON.stringify({ environment: "server", available: true, capabilities }));
      }
      if (req.path.startsWith(pathAssets) && (req.method === "GET" || req.method === "HEAD")) return await this.#asset(req);
      const e = new WireError(
        "CAPABILITY_UNAVAILABLE",
        `nothing is served at ${req.method} ${req.path.slice(0, 200)}`,
        req.path.slice(0, 200),
        { code: "not_found" },
      );
      return failure(e, 404);
    } catch (thrown) {
      if (!(thrown instanceof WireError)) this.#options.onError(thrown, req.path);
      const e = wireOf(thrown, req.path.slice(0, 200));
      return failure(e, e.status === 200 ? 500 : e.status);
    }
  }

  /**
   * Refuses a request without the token, before path and body are examined. Without a token of its own, the endpoint refuses web
   * pages: a page of any site can send requests to loopback.
   */
  #authenticate(req: Incoming): Outgoing | undefined {
    if (!this.#token) {
      if (!req.page || req.path.startsWith(pathAssets)) return undefined;
      const details = { code: "denied", reason: "page_refused" };
      const message = "this endpoint has no token, and takes no calls of web pages";
      return failure(new WireError("CAPABILITY_UNAVAILABLE", message, req.path.slice(0, 200), details), 403);
    }
    const given = /^bearer\s+(\S.*)$/i.exec(req.authorization)?.[1]?.trim();
    if (given !== undefined && timingSafeEqual(sha256(given), this.#token)) return undefined;
    const message = given === undefined ? "this endpoint needs a bearer token" : "the bearer token is not valid here";
    const answer = failure(new WireError("CAPABILITY_UNAVAILABLE", message, req.path.slice(0, 200), { code: "unauthenticated" }), 401);
    answer.headers["www-authenticate"] = "Bearer";
    return answer;
  }

  async #invoke(req: Incoming): Promise<Outgoing> {
    const { method, params } = parseRequest(await req.body(), req.path);
    try {
      return json(200, `{"ok":true,"result":${await this.#call(method, decodeParams(method, params), req.signal)}}`);
    } catch (thrown) {
      return failure(wireOf(thrown, method), 200);
    }
  }

  async #asset(req: Incoming): Promise<Outgoing> {
    const bad = (message: string) =>
      failure(new WireError("CAPABILITY_DECODE_FAILED", "the asset URL " + message, "plugin.asset.get", { code: "invalid_input" }), 400);
    const [first = "", ...rest] = req.path.slice(pathAssets.length).split("/");
    let moduleId: string;
    let segments: string[];
    try {
      moduleId = decodeURIComponent(first);
      segments = rest.map(decodeURIComponent);
    } catch {
      return bad("has a malformed percent escape");
    }
    const path = "/" + segments.join("/");
    if (checkModuleID(moduleId) || segments.length === 0) return bad("needs a module id and an asset path");
    if (segments.some((s) => s === "" || s === "." || s === ".." || /[/\\\u0000-\u001f\u007f]/.test(s)) || checkAssetPath(path))
      return bad("has an unsafe segment");
    let file: File;
    try {
      file = JSON.parse(await this.#call("plugin.asset.get", { moduleId, path }, req.signal)) as File;
    } catch (thrown) {
      const e = wireOf(thrown, "plugin.asset.get");
      return failure(e, statusOf(e));
    }
    const body = Buffer.from(file.bodyBase64, "base64");
    const etag = `"${createHash("sha256").update(body).digest("hex")}"`;
    const headers: Record<string, string> = {
      etag,
      "x-content-type-options": "nosniff",
      "cache-control": "no-cache",
      "x-eliza-asset-integrity": file.integrity,
      ...(!this.#token && { "access-control-allow-origin": "*" }),
    };
    const known = req.ifNoneMatch.split(",").map((tag) => tag.trim().replace(/^W\//, ""));
    if (known.includes(etag) || known.includes("*")) return { status: 304, headers, body: "" };
    return { status: 200, headers: { ...headers, "content-type": file.contentType }, body };
  }

  /** Reads a body within the limits of size and time. */
  async #read(source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, declared: number): Promise<Uint8Array> {
    const max = this.#options.maxBodyBytes;
    const refuse = (status: number, message: string, details: JSONObject): WireError => {
      const e = new WireError(status === 413 ? "CAPABILITY_DECODE_FAILED" : "CAPABILITY_REQUEST_FAILED", message, pathInvoke, details);
      e.status = status;
      return e;
    };
    const large = () => refuse(413, `the request body exceeds the limit of ${max} bytes`, { code: "too_large" });
    if (declared > max) throw large();
    const incomplete = () => refuse(400, "the request body could not be read", { code: "invalid_input", reason: "incomplete_body" });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(incomplete()), this.#options.bodyTimeoutMs + (max / (64 << 10)) * 1000);
    });
    const chunks: Uint8Array[] = [];
    const iterator = Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
    try {
      for (let size = 0; ;) {
        const next = await Promise.race([iterator.next(), late]);
        if (next.done) return Buffer.concat(chunks);
        size += next.value.byteLength;
        if (size > max) throw large();
        chunks.push(next.value);
      }
    } catch (thrown) {
      throw thrown instanceof WireError ? thrown : incomplete();
    } finally {
      clearTimeout(timer);
    }
  }

  // ---- Calls -----------------------------------------------------------------

  /** Makes one call with checked parameters and returns its checked result as JSON. */
  async #call(method: string, params: JSONObject, signal: AbortSignal): Promise<string> {
    const m = methods.get(method);
    if (!m) throw new JunctorError("unknown_capability", `the protocol has no method ${method}`);
    if (m.family !== "plugin") {
      throw new JunctorError("unavailable", `this endpoint does not offer ${method}`, {
        reason: "family_not_offered",
        hint: `ask GET ${pathAvailability} for the families it has`,
      });
    }
    if (m.surface === "module") return this.#list;
    const moduleId = String(params.moduleId);
    const target = m.target === "serviceType" ? `${String(params.serviceType)}.${String(params.method)}` : String(params[m.target]);
    const name = `${moduleId}:${m.surface}:${target}`;
    const serve = this.#items.get(key(method, moduleId, target)) ?? this.#items.get(key(method, moduleId, ""));
    if (!serve) throw new JunctorError("unknown_capability", `this endpoint has no ${name.slice(0, 300)}`);
    if (this.#running >= this.#options.maxCalls) {
      throw new JunctorError("overloaded", `this endpoint runs ${this.#running} calls, as many as it may`, { retryAfter: 1000 });
    }
    this.#running++;
    try {
      const text = JSON.stringify(await serve(params, { signal, moduleId }));
      if (Buffer.byteLength(text) > this.#options.maxResultBytes) {
        throw new JunctorError("too_large", `the result of ${name} is larger than ${this.#options.maxResultBytes} bytes`);
      }
      decodeResult(method, JSON.parse(text));
      return text;
    } catch (thrown) {
      if (thrown instanceof JunctorError) throw thrown;
      this.#options.onError(thrown, name);
      if (thrown instanceof WireError)
        throw new WireError(thrown.code, `${name} answered against the protocol: ${thrown.message}`, thrown.at, thrown.details);
      throw new JunctorError("failed", `${name} failed`, { cause: thrown });
    } finally {
      this.#running--;
    }
  }

  /** Adds the handlers of all items of a module. */
  #register(m: Module, files: Map<string, File>): void {
    const on = (method: string, target: string, serve: Serve) => this.#items.set(key("plugin." + method, m.id, target), serve);
    for (const a of m.actions ?? []) {
      on("action.invoke", a.name, async (p, c) => reply(await a.handle(object(p.content), { ...c, options: object(p.options) })));
    }
    for (const x of m.providers ?? []) on("provider.get", x.name, async (p, c) => reply(await x.get(object(p.state), c)));
    for (const x of m.events ?? [])
      on("event.handle", x.name, async (p, c) => ({ handled: (await x.handle(object(p.payload), c)) !== false }));
    for (const x of m.models ?? []) on("model.invoke", x.type, async (p, c) => ({ result: (await x.invoke(p.params, c)) ?? null }));
    for (const s of m.services ?? []) {
      for (const [name, method] of Object.entries(s.methods)) {
        on("service.call", `${s.type}.${name}`, async (p, c) => ({
          result: (await method((p.args as unknown[] | undefined) ?? [], c)) ?? null,
        }));
      }
    }
    for (const [name, hook] of Object.entries(m.lifecycle ?? {})) {
      if (!hook) continue;
      on("lifecycle.call", name, async (p, c) => {
        await hook((p.config as Record<string, string> | undefined) ?? {}, object(p.context), c);
        return { ok: true };
      });
    }
    for (const [name, hook] of Object.entries(m.appBridge ?? {})) {
      if (!hook) continue;
      on("appBridge.call", name, async (p, c) => ({ result: (await hook(object(p.context), c)) ?? null }));
    }
    if (m.routes?.length) {
      const routes = [...m.routes];
      on("route.call", "", (p, c) => callRoute(m.id, routes, p, c));
    }
    if (files.size > 0) {
      on("asset.get", "", async (p) => {
        const file = files.get(cleanAssetPath(String(p.path)));
        if (!file) throw new JunctorError("not_found", `${m.id} has no such asset`);
        return file;
      });
    }
    this.#registerEvaluators(m, on);
  }

  #registerEvaluators(m: Module, on: (method: string, target: string, serve: Serve) => void): void {
    for (const x of m.evaluators ?? []) {
      const phase = (name: string, serve: (call: EvaluatorCall, context: CallContext) => Promise<unknown>) =>
        on("evaluator." + name, x.name, (p, c) =>
          serve(
            { message: object(p.message), state: object(p.state), options: object(p.options), prepared: p.prepared, output: p.output },
            c,
          ),
        );
      phase("shouldRun", async (call, c) => ({ shouldRun: x.shouldRun ? await x.shouldRun(call, c) : true }));
      phase("prepare", async (call, c) => (x.prepare ? { prepared: await x.prepare(call, c) } : {}));
      phase("prompt", async (call, c) => ({ prompt: x.buildPrompt ? await x.buildPrompt(call, c) : x.prompt }));
      phase("process", async (call, c) => ({ result: (x.process && (await x.process(call, c))) ?? {} }));
    }
    for (const x of m.responseEvaluators ?? []) {
      on("responseHandlerEvaluator.shouldRun", x.name, async (p, c) => ({
        shouldRun: x.shouldRun ? await x.shouldRun(object(p.context), c) : true,
      }));
      on("responseHandlerEvaluator.evaluate", x.name, async (p, c) => ({
        patch: (x.evaluate && (await x.evaluate(object(p.context), c))) ?? {},
      }));
    }
    for (const x of m.fieldEvaluators ?? []) {
      const phase = (name: string, serve: (call: FieldCall, context: CallContext) => Promise<unknown>) =>
        on("responseHandlerFieldEvaluator." + name, x.name, (p, c) =>
          serve({ context: object(p.context), value: p.value, ...(isObject(p.parsed) && { parsed: p.parsed }) }, c),
        );
      phase("shouldRun", async (call, c) => ({ shouldRun: x.shouldRun ? await x.shouldRun(call, c) : true }));
      phase("parse", async (call, c) => {
        const value = x.parse ? await x.parse(call, c) : call.value;
        return value === undefined ? { softFail: true } : { value };
      });
      phase("handle", async (call, c) => ({ effect: (x.handle && (await x.handle(call, c))) ?? {} }));
    }
  }
}

function key(method: string, moduleId: string, target: string): string {
  return `${method}\n${moduleId}\n${target}`;
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function object(value: unknown): JSONObject {
  return isObject(value) ? value : {};
}

/** Returns the result of an action or a provider, which needs at least one member. */
function reply(value: unknown): unknown {
  if (typeof value === "string") return { text: value };
  if (value === undefined || value === null) return { text: "" };
  return isObject(value) && ["text", "actions", "values", "data"].every((name) => value[name] === undefined)
    ? { ...value, text: "" }
    : value;
}

/** Calls the first route that matches. */
async function callRoute(moduleId: string, routes: Route[], p: JSONObject, context: CallContext): Promise<unknown> {
  const method = String(p.method);
  const path = String(p.path);
  const route = routes.find((r) => r.method === method && matchRoute(r.path, path));
  if (!route) throw new JunctorError("unknown_capability", `this endpoint has no ${moduleId}:route:${method} ${path.slice(0, 200)}`);
  const answer = await route.handle(
    {
      method,
      path,
      params: pathParams(route.path, path),
      query: object(p.query) as Record<string, string | string[]>,
      headers: object(p.headers) as Record<string, string>,
      body: p.body,
    },
    context,
  );
  return { ...answer, status: answer.status ?? 200 };
}

function pathParams(declared: string, path: string): Record<string, string> {
  const out: Record<string, string> = {};
  const have = path.split("/");
  for (const [i, want] of declared.split("/").entries()) {
    if (!want.startsWith(":")) continue;
    const value = want.endsWith("*") ? have.slice(i).join("/") : (have[i] ?? "");
    let decoded = value;
    try {
      decoded = decodeURIComponent(value);
    } catch {
      // A malformed escape stays as it is.
    }
    out[want.slice(1).replace(/\*$/, "")] = decoded;
  }
  return out;
}

function json(status: number, body: string): Outgoing {
  return { status, headers: { "content-type": "application/json", "x-content-type-options": "nosniff" }, body };
}

function failure(e: WireError, status: number): Outgoing {
  const family = methods.get(e.at)?.family;
  const capability = family && e.code !== "CAPABILITY_DECODE_FAILED" ? { capability: family } : {};
  return json(
    status,
    JSON.stringify({
      ok: false,
      error: { code: e.code, message: e.message.slice(0, 8192), ...capability, method: e.at, ...(e.details && { details: e.details }) },
    }),
  );
}
