import { randomUUID } from "node:crypto";
import { cpus, hostname, totalmem } from "node:os";
import type { Msg, NatsConnection } from "@nats-io/nats-core";
import { type ErrorCode, isObject, JunctorError } from "./errors.js";
import { Folder, type Identity, type NodeKey, Web } from "./identity.js";
import { checkToken, sleep } from "./internal.js";
import { checkInput, type FromSchema, type ObjectSchema } from "./schema.js";

/** What a function does, for the policy of the gateway. Default is execute. */
export type FunctionEffect = "read" | "write" | "execute" | "administer";

/** One call, for a handler. */
export interface NodeCall {
  /** Aborted when the caller has given up, the deadline has passed or the session has ended. */
  signal: AbortSignal;
  id: string;
  function: string;
  /** The principal that calls, for display and records. */
  caller: string;
  /** The arguments by position and by name, as they arrived. */
  args: unknown[];
  kwargs: Record<string, unknown>;
  idempotencyKey?: string;
  /** Reports progress: a fraction from 0 to 1, and a text. */
  progress(fraction: number, message?: string): void;
}

/** A value, a promise of one, or chunks. */
type Output = unknown;

/** The declaration of a function. */
export interface FunctionOptions<S extends ObjectSchema = ObjectSchema> {
  description?: string;
  /** Default 1.0.0. */
  version?: string;
  tags?: string[];
  effect?: FunctionEffect;
  /** JSON Schema of the input. Calls that do not fit are refused with the code invalid_params. */
  parameters?: S;
  /** JSON Schema of the result. */
  output?: ObjectSchema;
  /** Deadline of a call in milliseconds; default that of the node. */
  timeoutMs?: number;
  /** 1 to 10, higher first in the queue; default 5. */
  priority?: number;
  /** Calls of this function that run at once; default: the limit of the node only. */
  maxConcurrent?: number;
  /** Whether it answers with chunks. Default: whether the handler is an async generator function. */
  stream?: boolean;
}

/** Handles calls. An async generator yields chunks; it continues as the reader takes them. */
export type Handler<In> = (input: In, call: NodeCall) => Output;

/** The minimum of a WebSocket that the node uses. */
export type WebSocketConstructor = new (url: string) => WebSocket;

/** The state of a node's session. */
export type NodeState = "idle" | "connecting" | "connected" | "draining" | "closed";

/** Options of a {@link Node}. */
export interface NodeOptions {
  /** Address of the gateway, https://host; http on this machine only. A list is tried in order. If absent, JUNCTOR_URL. */
  gateway?: string | string[];
  /** The operator's node token. With a dir it is needed for the first join only. If absent, JUNCTOR_NODE_TOKEN. */
  token?: string;
  /** The node's own folder with its key and id. If absent, nothing is stored, and the token is needed each time. */
  dir?: string;
  /** 1 to 128 of [A-Za-z0-9._-]. If absent, the id in dir, else the name of the host. */
  id?: string;
  labels?: string[];
  location?: string;
  /** Name and version of the program. */
  software?: { name: string; version: string };
  /** Calls that run at once; default 10. */
  maxConcurrent?: number;
  /** Calls that wait; default 1000. */
  maxQueue?: number;
  /** Deadline of a call that has none, in milliseconds; default 5 minutes. */
  timeoutMs?: number;
  /** First and longest pause between two attempts to connect, in milliseconds; default 1 s and 60 s. */
  reconnectDelayMs?: number;
  maxReconnectDelayMs?: number;
  /** The constructor of WebSockets. Default: that of the runtime, which Node has since version 22. */
  WebSocket?: WebSocketConstructor;
  /** Receives each change of the state, with the reason of a lost connection. */
  onState?: (state: NodeState, reason?: JunctorError) => void;
  /** Receives the errors of handlers, beside the caller. By default they are not recorded. */
  onError?: (error: unknown, call: NodeCall) => void;
}

interface Declared {
  name: string;
  entry: Record<string, unknown>;
  parameters?: ObjectSchema;
  timeoutMs?: number;
  priority: number;
  maxConcurrent: number;
  stream: boolean;
  handle: Handler<never>;
  running: number;
}

interface CallMessage {
  epoch: number;
  call_id: string;
  function: string;
  args?: unknown[];
  kwargs?: Record<string, unknown>;
  arguments?: unknown;
  stream: boolean;
  deadline_ms: number;
  idempotency_key?: string;
  window?: number;
  caller?: { id?: string };
}

const maxChunk = 128 << 10;
/** The largest call of the gateway. */
const maxUpward = 512 << 10;
const maxStreams = 32;
/** The bytes of all streams that may be on their way. */
const maxOut = 4 << 20;
const maxMessage = 4 << 10;
const joinTimeout = 15_000;
const connectTimeout = 10_000;
const ackDelay = 200;
const drainTimeout = 30_000;
const leaveDelay = 250;
/** Refusals of the credential in a row after which the node gives up. */
const maxRefusals = 3;
const nodeGrammar = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const functionGrammar = /^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$/;
const reserved = new Set([
  "device.install_remote_skill",
  "device.uninstall_remote_skill",
  "device.list_installed_skills",
  "device.list_node_functions",
  "device.get_capability_host_status",
]);

/** The reasons of the wire, with the code of each. */
const reasons: Record<string, ErrorCode> = {
  function_not_found: "unknown_capability",
  node_overloaded: "overloaded",
  invalid_params: "invalid_input",
  timeout: "timeout",
  cancelled: "cancelled",
  execution_failed: "failed",
  payload_too_large: "too_large",
  denied: "denied",
  consent_required: "approval_required",
  consent_denied: "denied",
  connection_failed: "unavailable",
  bad_encoding: "invalid_input",
  unsupported_version: "invalid_input",
  no_available_nodes: "unavailable",
  node_lost: "failed",
  reserved_function: "denied",
  digest_mismatch: "invalid_input",
};

/** The reason of the wire for a code. */
const nearest: Partial<Record<ErrorCode, string>> = {
  unauthenticated: "denied",
  denied: "denied",
  approval_required: "consent_required",
  invalid_input: "invalid_params",
  not_found: "invalid_params",
  too_large: "payload_too_large",
  unknown_capability: "function_not_found",
  overloaded: "node_overloaded",
  unavailable: "no_available_nodes",
  timeout: "timeout",
  cancelled: "cancelled",
};

/** The classes of errors that older clients match. */
const errorTypes: Record<string, string> = {
  function_not_found: "FunctionNotFoundError",
  node_overloaded: "RemoteExecutionError",
  invalid_params: "ValueError",
  timeout: "TimeoutError",
  execution_failed: "RemoteExecutionError",
  payload_too_large: "SerializationError",
  bad_encoding: "SerializationError",
  denied: "PermissionError",
  consent_required: "PermissionError",
  no_available_nodes: "NoAvailableNodesError",
  connection_failed: "ConnectionError",
};

function problem(reason: string, message: string, retryAfter = 0): JunctorError {
  return new JunctorError(reasons[reason] ?? "internal", message, { reason, retryAfter });
}

/** Returns the first bytes of a text that fit the limit of messages. */
function clip(text: string): string {
  const bytes = Buffer.from(text);
  return bytes.byteLength <= maxMessage
    ? text
    : bytes
        .subarray(0, maxMessage - 4)
        .toString()
        .replace(/\ufffd$/, "") + "…";
}

/** Returns the JSON of a value, in which bytes are {"$bytes": base64}. */
export function encode(value: unknown): string {
  const text = JSON.stringify(value ?? null, function (this: Record<string, unknown>, name: string, member: unknown) {
    if (typeof member !== "object" || member === null) return member;
    const given = this[name];
    return given instanceof Uint8Array
      ? { $bytes: Buffer.from(given.buffer, given.byteOffset, given.byteLength).toString("base64") }
      : member;
  });
  if (text === undefined) throw problem("bad_encoding", "the value cannot be written as JSON");
  return text;
}

/** Returns a value with bytes in place of {"$bytes": base64}. */
function decodeBytes(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(decodeBytes);
  if (!isObject(value)) return value;
  if (typeof value.$bytes === "string" && Object.keys(value).length === 1) return new Uint8Array(Buffer.from(value.$bytes, "base64"));
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, decodeBytes(member)]));
}

/** Returns a text as one part of a subject. */
function subjectToken(text: string): string {
  return text.replace(/[^A-Za-z0-9_-]/g, (c) =>
    [...Buffer.from(c)].map((b) => "=" + b.toString(16).toUpperCase().padStart(2, "0")).join(""),
  );
}

function gateways(given: string | string[] | undefined): URL[] {
  const list = (Array.isArray(given) ? given : (given ?? process.env.JUNCTOR_URL ?? "").split(","))
    .map((s) => s.trim())
    .filter((s) => s !== "");
  if (list.length === 0 || list.length > 16) {
    throw new JunctorError("invalid_input", "a node needs the address of 1 to 16 gateways", { hint: "pass gateway, or set JUNCTOR_URL" });
  }
  return list.map((text) => {
    const url = URL.canParse(text) ? new URL(text) : undefined;
    const local = url !== undefined && ["127.0.0.1", "localhost", "[::1]"].includes(url.hostname);
    if (!url || url.username || url.password || (url.protocol !== "https:" && !(url.protocol === "http:" && local))) {
      throw new JunctorError(
        "invalid_input",
        "this is not the address of a gateway: it must be https, or http on this machine, without a user or password",
      );
    }
    return url;
  });
}

/** Returns the id of a node that was not given one: the name of the host. */
export function defaultNodeId(): string {
  const clean = hostname()
    .split(".local")[0]!
    .replace(/[^A-Za-z0-9._-]/g, "-")
    .replace(/^[-._]+|[-._]+$/g, "");
  return (clean || "node").slice(0, 128);
}

/**
 * A node offers functions of this program to a gateway. It dials out, joins, and serves calls until it is stopped. It
 * connects again by itself after every loss of the connection.
 *
 * ```ts
 * const node = new Node({ gateway: "https://gateway.example", token, id: "laptop" });
 * node.function("greet", { effect: "read", parameters: { type: "object", properties: { name: { type: "string" } } } },
 *   ({ name }) => `hello, ${name ?? "you"}`);
 * await node.run();
 * ```
 */
export class Node {
  readonly #gateways: URL[];
  readonly #token: string;
  readonly #options: NodeOptions;
  readonly #functions = new Map<string, Declared>();
  readonly #instance = randomUUID();
  readonly #session: Session;
  #state: NodeState = "idle";
  #started = false;
  #stop = new AbortController();
  #updating: NodeJS.Timeout | undefined;
  #revision = 1;
  #grantedLabels: string[] = [];

  /** Returns a node; it does not connect. Error: invalid_input if an option is malformed. */
  constructor(options: NodeOptions = {}) {
    this.#options = options;
    this.#gateways = gateways(options.gateway);
    this.#token = checkToken(options.token ?? process.env.JUNCTOR_NODE_TOKEN ?? "");
    if (!options.dir && !this.#token) throw new JunctorError("invalid_input", "a node without a dir needs a token each time");
    if (options.id !== undefined && !nodeGrammar.test(options.id)) {
      throw new JunctorError(
        "invalid_input",
        "the id of a node is a letter or digit, then up to 127 letters, digits, dots, underscores or hyphens",
        { reason: "invalid_params" },
      );
    }
    if ((options.labels?.length ?? 0) > 64)
      throw new JunctorError("invalid_input", "a node has at most 64 labels", { reason: "invalid_params" });
    this.#session = new Session(this.#functions, options);
  }

  /** The state of the session. */
  get state(): NodeState {
    return this.#state;
  }

  /** The id with which the node has joined, or "". */
  get id(): string {
    return this.#session.id;
  }

  /** The number of the session, which grows with each join; 0 while there is none. */
  get epoch(): number {
    return this.#session.epoch;
  }

  /**
   * Offers a function, also while the node runs. A function of the same name is replaced; calls that run keep the old one.
   * The input is the arguments by name, or a single positional one that is an object.
   */
  function<const S extends ObjectSchema = ObjectSchema>(name: string, options: FunctionOptions<S>, handle: Handler<FromSchema<S>>): this {
    if (!functionGrammar.test(name)) {
      throw new JunctorError(
        "invalid_input",
        "the name of a function is a letter, digit or underscore, then up to 199 of those and . : / -",
        { reason: "invalid_payload" },
      );
    }
    if (reserved.has(name)) throw new JunctorError("denied", `the name ${name} belongs to the protocol`, { reason: "reserved_function" });
    if (!this.#functions.has(name) && this.#functions.size >= 1024)
      throw new JunctorError("too_large", "a node has at most 1024 functions");
    const stream = options.stream ?? handle.constructor.name === "AsyncGeneratorFunction";
    const priority = Math.min(Math.max(Math.round(options.priority ?? 5), 1), 10);
    const maxConcurrent = options.maxConcurrent ?? 0;
    this.#functions.set(name, {
      name,
      parameters: options.parameters,
      timeoutMs: options.timeoutMs,
      priority,
      maxConcurrent,
      stream,
      handle: handle as Handler<never>,
      running: 0,
      entry: {
        name,
        description: options.description ?? "",
        version: options.version ?? "1.0.0",
        tags: options.tags ?? [],
        priority,
        execution_mode: "normal",
        timeout_seconds: options.timeoutMs === undefined ? null : options.timeoutMs / 1000,
        is_async: true,
        is_generator: stream,
        stream,
        effect: options.effect ?? "execute",
        ...(options.parameters && { input_schema: options.parameters }),
        ...(options.output && { output_schema: options.output }),
        max_concurrent: maxConcurrent,
      },
    });
    this.#changed();
    return this;
  }

  /** Withdraws a function. It reports whether there was one. Calls that run go on. */
  removeFunction(name: string): boolean {
    const removed = this.#functions.delete(name);
    if (removed) this.#changed();
    return removed;
  }

  /**
   * Joins the gateway and serves calls until signal is aborted, {@link Node.drain} was called, or the gateway drains the node. Then
   * it finishes the calls that run, within 30 s, and leaves.
   * Errors: unauthenticated if the gateway refuses the credential; conflict, reason superseded, if another process joined with
   * this id; those of a refused join.
   */
  async run(options: { signal?: AbortSignal } = {}): Promise<void> {
    if (this.#started) throw new JunctorError("conflict", "a node runs once");
    this.#started = true;
    const outer = options.signal;
    const stop = () => this.#stop.abort();
    if (outer?.aborted) stop();
    outer?.addEventListener("abort", stop, { once: true });
    const folder = this.#options.dir === undefined ? undefined : await Folder.open(this.#options.dir);
    try {
      await this.#run(folder);
    } finally {
      outer?.removeEventListener("abort", stop);
      this.#session.end("the node has stopped");
      clearTimeout(this.#updating);
      await folder?.close();
      this.#setState("closed");
    }
  }

  /** Finishes the calls that run, within 30 s, and ends {@link Node.run}. */
  drain(): void {
    this.#session.draining = true;
    if (this.#state === "connected") this.#setState("draining");
    this.#session.drain?.();
    if (!this.#session.drain) this.#stop.abort();
  }

  /**
   * Calls a capability of the gateway as the principal that this node is, and returns its result. The default policy of a gateway
   * lets nodes call nothing.
   */
  async call<T = unknown>(
    action: string,
    input?: unknown,
    options: { select?: string; timeoutMs?: number; idempotencyKey?: string } = {},
  ): Promise<T> {
    const connection = this.#session.connection;
    if (!connection || !this.epoch) throw problem("connection_failed", "the node is not connected");
    const timeoutMs = options.timeoutMs ?? 60_000;
    const body = encode({
      call_id: randomUUID().replaceAll("-", ""),
      action,
      input: input ?? {},
      deadline_ms: timeoutMs,
      ...(options.select && { select: options.select }),
      ...(options.idempotencyKey && { idempotency_key: options.idempotencyKey }),
    });
    if (Buffer.byteLength(body) > maxUpward) throw problem("payload_too_large", `the call is larger than ${maxUpward} bytes`);
    let reply: Msg;
    try {
      reply = await connection.request(`v1.node.${subjectToken(this.id)}.call`, body, { timeout: timeoutMs + 5000 });
    } catch (cause) {
      throw new JunctorError("timeout", "the gateway did not answer in time", { reason: "timeout", cause });
    }
    const answer: unknown = reply.json();
    if (isObject(answer) && answer.ok === true) return answer.result as T;
    throw wireError(isObject(answer) ? answer.error : undefined);
  }

  // ---- The session -----------------------------------------------------------

  async #run(folder: Folder | undefined): Promise<void> {
    const signal = this.#stop.signal;
    const who: Identity = folder
      ? await folder.identity(this.#options.id, defaultNodeId())
      : { node_id: this.#options.id ?? defaultNodeId() };
    const key = await folder?.key();
    if (!nodeGrammar.test(who.node_id)) throw new JunctorError("invalid_input", "the id of the node is malformed");
    this.#session.id = who.node_id;
    const gateway = this.#gateways.map((u) => u.origin).join(",");
    if (who.public_key !== key?.publicKey || who.gateway !== gateway) who.enrolled = false;
    if (key && !who.enrolled && !this.#token) {
      throw new JunctorError("invalid_input", "this node has not enrolled yet, and no token is given", {
        reason: "not_enrolled",
        hint: "make one on the gateway: junctor tokens create --role node",
      });
    }
    let again = Boolean(this.#token && key);
    let refusals = 0;
    for (let attempt = 0, at = 0; !signal.aborted; at = (at + 1) % this.#gateways.length) {
      this.#setState("connecting");
      const base = this.#gateways[at]!;
      const session = this.#session;
      session.web = new Web(base.origin, who.node_id, key, this.#token, () => Date.now() + session.skew);
      try {
        if (key && folder && !who.enrolled) {
          who.labels = await session.web.enrol(signal);
          Object.assign(who, { enrolled: true, gateway, public_key: key.publicKey });
          await folder.save(who);
        }
        this.#grantedLabels = who.labels ?? [];
        const joined = await this.#connected(base, key);
        if (joined) attempt = refusals = 0;
        if (this.#session.finished) return;
      } catch (thrown) {
        const e = thrown instanceof JunctorError ? thrown : problem("connection_failed", "the connection to the gateway failed");
        if (isRefusal(thrown)) {
          if (++refusals >= maxRefusals && !(again && who.enrolled)) {
            throw new JunctorError("unauthenticated", "the gateway refuses the credential of the node", { reason: "refused" });
          }
          // The gateway may have lost the node, so that it enrols once more.
          if (refusals >= maxRefusals) [again, who.enrolled, refusals] = [false, false, 0];
        } else if (isFinal(e)) throw e;
        this.#options.onState?.("connecting", e);
      }
      if (signal.aborted) return;
      attempt++;
      const { reconnectDelayMs = 1000, maxReconnectDelayMs = 60_000 } = this.#options;
      const pause = Math.min(maxReconnectDelayMs, reconnectDelayMs * 1.5 ** (attempt - 1));
      // The first attempt after a session that worked is made at once by most nodes, so it is spread too.
      await sleep(pause / 2 + pause * Math.random(), signal).catch(() => undefined);
    }
  }

  /** Makes one connection and serves it until it ends. It reports whether the node had joined. */
  async #connected(base: URL, key: NodeKey | undefined): Promise<boolean> {
    const { nkeyAuthenticator, wsconnect } = await import("@nats-io/nats-core");
    const Socket = this.#options.WebSocket ?? (globalThis.WebSocket as WebSocketConstructor | undefined);
    if (!Socket) {
      throw new JunctorError("invalid_input", "this runtime has no WebSocket", {
        hint: "use Node 22 or newer, or pass WebSocket, for example that of the package ws",
      });
    }
    const address = new URL("/nodes/connect", base);
    address.protocol = base.protocol === "https:" ? "wss:" : "ws:";
    const token = subjectToken(this.#session.id);
    const connection = await wsconnect({
      servers: address.href,
      name: this.#session.id,
      inboxPrefix: "_INBOX." + token,
      timeout: connectTimeout,
      pingInterval: 5000,
      maxPingOut: 2,
      // A connection is not resumed: its epoch has ended. The next one is made by #run.
      reconnect: false,
      ignoreClusterUpdates: true,
      noAsyncTraces: true,
      ...(key ? { authenticator: nkeyAuthenticator(key.seed) } : { token: this.#token }),
      wsFactory: async () => ({ socket: new Socket(address.href), encrypted: address.protocol === "wss:" }),
    });
    const session = this.#session;
    const stop = () => void session.leave();
    try {
      return await session.serve(connection, {
        join: () => this.#join(connection),
        update: () => void this.#update(),
        connected: () => {
          this.#setState(session.draining ? "draining" : "connected");
          this.#stop.signal.addEventListener("abort", stop, { once: true });
          if (this.#stop.signal.aborted) stop();
        },
      });
    } finally {
      this.#stop.signal.removeEventListener("abort", stop);
      session.end("the connection broke");
      await connection.close().catch(() => undefined);
    }
  }

  async #join(connection: NatsConnection): Promise<JoinReply> {
    const session = this.#session;
    const { location, software, maxConcurrent = 10 } = this.#options;
    const reply = await connection.request(
      `v1.gw.${subjectToken(session.id)}.join`,
      JSON.stringify({
        proto: 1,
        node_id: session.id,
        instance: this.#instance,
        software: software ?? { name: "junctor-typescript", version: "" },
        os: process.platform,
        arch: process.arch,
        labels: this.#labels(),
        ...(location && { location }),
        functions: [...this.#functions.values()].map((f) => f.entry),
        revision: this.#revision,
        epoch: session.last,
        max_concurrent: maxConcurrent,
        accepting: !session.draining,
      }),
      { timeout: joinTimeout },
    );
    const answer: unknown = reply.json();
    if (!isObject(answer) || answer.ok !== true || typeof answer.epoch !== "number")
      throw wireError(isObject(answer) ? answer.error : undefined);
    return answer as unknown as JoinReply;
  }

  #labels(): string[] {
    return [...new Set([...(this.#options.labels ?? []), ...this.#grantedLabels])]
      .map((l) => l.trim())
      .filter((l) => l !== "")
      .sort();
  }

  /** Sends what the node offers now. Changes of 50 ms are sent together. */
  #changed(): void {
    if (this.#state !== "connected") {
      if (this.#started) this.#revision++;
      return;
    }
    this.#revision++;
    this.#session.revision = this.#revision;
    this.#updating ??= setTimeout(() => {
      this.#updating = undefined;
      void this.#update();
    }, 50);
  }

  async #update(): Promise<void> {
    const { connection, epoch, id } = this.#session;
    if (!connection || !epoch) return;
    const body = { epoch, revision: this.#revision, functions: [...this.#functions.values()].map((f) => f.entry), labels: this.#labels() };
    // If no answer arrives, the gateway requests the update again after the next heartbeat.
    await connection.request(`v1.gw.${subjectToken(id)}.update`, JSON.stringify(body), { timeout: joinTimeout }).catch(() => undefined);
  }

  #setState(state: NodeState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#session.revision = this.#revision;
    this.#options.onState?.(state);
  }
}

interface JoinReply {
  epoch: number;
  heartbeat_ms: number;
  max_inline: number;
  window: number;
  server_time?: string;
}

/** Returns the error of a gateway in the form of the wire. */
function wireError(error: unknown): JunctorError {
  if (!isObject(error)) return problem("bad_encoding", "the gateway's answer cannot be read");
  const details = isObject(error.details) ? error.details : {};
  const code = typeof error.code === "string" ? error.code : "execution_failed";
  const reason = typeof details.reason === "string" ? details.reason : typeof error.reason === "string" ? error.reason : code;
  return new JunctorError(reasons[code] ?? nearestCode(code), clip(String(error.message ?? code)), {
    reason,
    details,
    hint: typeof error.hint === "string" ? error.hint : "",
    retryAfter: Math.min(Math.max(Number(error.retry_after_ms ?? 0) || 0, 0), 24 * 3600 * 1000),
  });
}

function nearestCode(code: string): ErrorCode {
  return code in nearest ? (code as ErrorCode) : "failed";
}

/** Reports whether a refused join is for good. */
function isFinal(e: JunctorError): boolean {
  return (
    e.reason === "superseded" ||
    e.reason === "unsupported_version" ||
    e.reason === "bad_encoding" ||
    e.reason === "node_running" ||
    ["denied", "invalid_input", "too_large", "conflict", "not_found", "unauthenticated"].includes(e.code)
  );
}

/** Reports whether the bus has refused the credential. */
function isRefusal(thrown: unknown): boolean {
  return (
    thrown instanceof Error && /authorization|authentication/i.test(`${thrown.name} ${thrown.message}`) && !(thrown instanceof JunctorError)
  );
}

/** One session after the other: what has been agreed with the gateway, and the calls that run. */
class Session {
  id = "";
  epoch = 0;
  /** The epoch of the last session. */
  last = 0;
  revision = 1;
  draining = false;
  /** Whether the node has left and must not come back. */
  finished = false;
  /** The difference between the clock of the gateway and this one. */
  skew = 0;
  connection: NatsConnection | undefined;
  web: Web | undefined;
  drain: (() => void) | undefined;
  readonly #functions: Map<string, Declared>;
  readonly #options: NodeOptions;
  readonly #calls = new Map<string, Call>();
  #queue: Call[] = [];
  #running = 0;
  #streams = 0;
  #inline = 512 << 10;
  #window = 256 << 10;
  #outstanding = 0;
  #beats: NodeJS.Timeout | undefined;
  #sequence = 0;
  #times = cpuTimes();
  #prefix = "";

  constructor(functions: Map<string, Declared>, options: NodeOptions) {
    this.#functions = functions;
    this.#options = options;
  }

  /** Joins over a connection and serves it until it ends. It reports whether the node had joined. */
  async serve(connection: NatsConnection, on: { join(): Promise<JoinReply>; update(): void; connected(): void }): Promise<boolean> {
    this.connection = connection;
    const token = subjectToken(this.id);
    this.#prefix = `v1.gw.${token}.`;
    let fail: (e: JunctorError) => void = () => undefined;
    const failed = new Promise<never>((_, reject) => (fail = reject));
    failed.catch(() => undefined); // without a reader it is reported by the race below
    const join = async () => {
      this.end("the session is renewed");
      this.connection = connection;
      this.drain = () => void this.leave();
      const reply = await on.join();
      this.epoch = this.last = reply.epoch;
      this.#inline = Math.min(Number(reply.max_inline) || this.#inline, 512 << 10) - 4096;
      this.#window = Number(reply.window) || this.#window;
      const time = Date.parse(reply.server_time ?? "");
      this.skew = Number.isNaN(time) ? 0 : time - Date.now();
      clearInterval(this.#beats);
      this.#beats = setInterval(() => this.#beat(), Math.max(Number(reply.heartbeat_ms) || 5000, 100));
      this.#beat();
      on.connected();
    };
    const host = `v1.host.${token}.`;
    connection.subscribe(host + ">", {
      callback: (error, message) => {
        if (error) return;
        let body: unknown;
        try {
          body = JSON.parse(message.string());
        } catch {
          return;
        }
        if (!isObject(body)) return;
        if (message.subject === host + "call") this.#called(body as unknown as CallMessage, message);
        else if (message.subject === host + "ctl" && body.epoch === this.last)
          this.#control(body, { join: () => void join().catch(fail), update: on.update, fail });
      },
    });
    await join();
    const closed = connection.closed();
    await Promise.race([closed, failed]);
    return true;
  }

  #control(c: Record<string, unknown>, on: { join(): void; update(): void; fail(e: JunctorError): void }): void {
    const call = this.#calls.get(String(c.call_id));
    switch (c.type) {
      case "cancel":
        call?.cancel(problem("cancelled", clip(String(c.reason || "the call was cancelled"))));
        break;
      case "credit":
        if (call) this.credit(call, Number(c.bytes) || 0);
        break;
      case "rejoin":
        on.join();
        break;
      case "update":
        on.update();
        break;
      case "beat":
        this.#beat();
        break;
      case "drain":
        this.draining = true;
        void this.leave();
        break;
      case "superseded":
        on.fail(new JunctorError("conflict", `another process has joined as ${this.id}`, { reason: "superseded" }));
        break;
    }
  }

  #beat(): void {
    if (!this.epoch || !this.connection || this.connection.isClosed()) return;
    const before = this.#times;
    this.#times = cpuTimes();
    const total = this.#times.total - before.total;
    const cpu = total > 0 ? 100 * (1 - (this.#times.idle - before.idle) / total) : 0;
    this.connection.publish(
      this.#prefix + "beat",
      JSON.stringify({
        epoch: this.epoch,
        seq: ++this.#sequence,
        revision: this.revision,
        cpu: percent(cpu),
        mem: percent(100 * (1 - process.availableMemory() / totalmem())),
        gpu: 0,
        active: this.#running,
        queued: this.#queue.length,
        accepting: !this.draining && this.#queue.length < this.#maxQueue,
      }),
    );
  }

  get #maxQueue(): number {
    return this.#options.maxQueue ?? 1000;
  }

  #called(message: CallMessage, from: Msg): void {
    const reply = from.reply ?? "";
    if (
      message.epoch !== this.epoch ||
      !this.epoch ||
      typeof message.call_id !== "string" ||
      this.#calls.has(message.call_id) ||
      !reply.startsWith(this.#prefix + "reply.")
    )
      return;
    const f = this.#functions.get(message.function);
    const call = new Call(this, message, reply, f, this.#options.timeoutMs ?? 5 * 60_000);
    const busy = this.draining || this.#queue.length >= this.#maxQueue || (message.stream && f?.stream && this.#streams >= maxStreams);
    if (!f) {
      const known = [...this.#functions.keys()].slice(0, 20).join(", ");
      return call.fail(
        problem(
          "function_not_found",
          `there is no function ${String(message.function).slice(0, 200)} on node '${this.id}'; it has ${known}`,
        ),
      );
    }
    if (busy) return call.fail(problem("node_overloaded", `Execution queue is full on node '${this.id}'. Please retry later.`, 1000));
    this.#calls.set(message.call_id, call);
    if (call.streams) this.#streams++;
    this.#queue.push(call);
    this.#next();
  }

  /** Starts calls of the queue while there is room: the highest priority first, then the oldest. */
  #next(): void {
    while (this.#running < (this.#options.maxConcurrent ?? 10) && this.#queue.length > 0) {
      let best = -1;
      for (let i = 0; i < this.#queue.length; i++) {
        const f = this.#queue[i]!.declared!;
        if (f.maxConcurrent > 0 && f.running >= f.maxConcurrent) continue;
        if (best < 0 || f.priority > this.#queue[best]!.declared!.priority) best = i;
      }
      if (best < 0) return;
      const call = this.#queue[best]!;
      if (best === 0) this.#queue.shift();
      else this.#queue.splice(best, 1);
      const f = call.declared!;
      this.#running++;
      f.running++;
      void call.run().finally(() => {
        this.#running--;
        f.running--;
        this.#next();
      });
    }
  }

  /** Forgets a call that has ended. */
  done(call: Call): void {
    if (this.#calls.get(call.message.call_id) !== call) return;
    this.#calls.delete(call.message.call_id);
    const waiting = this.#queue.indexOf(call);
    if (waiting >= 0) this.#queue.splice(waiting, 1);
    if (call.streams) this.#streams--;
    this.credit(call, call.outstanding);
  }

  /** Takes bytes off what a stream has on its way. */
  credit(call: Call, bytes: number): void {
    const n = Math.min(Math.max(bytes, 0), call.outstanding);
    call.outstanding -= n;
    this.#outstanding -= n;
    for (const one of this.#calls.values()) one.wake();
  }

  /** Waits until a chunk may be sent, and counts it. */
  async reserve(call: Call, size: number): Promise<void> {
    const window = call.message.window || this.#window;
    while (call.outstanding >= window || this.#outstanding + size > maxOut) {
      await new Promise<void>((resolve) => (call.wake = resolve));
      call.controller.signal.throwIfAborted();
    }
    call.outstanding += size;
    this.#outstanding += size;
  }

  /** Returns the JSON of a value for a frame: itself, or the reference to an asset if it is too large. */
  async value(value: unknown, limit: number, signal: AbortSignal): Promise<string> {
    const text = encode(value);
    const max = Math.min(limit, this.#inline);
    if (text.length <= max / 3 || Buffer.byteLength(text) <= max) return text;
    if (!this.web) throw problem("payload_too_large", `the value is larger than ${max} bytes`);
    if (value instanceof Uint8Array) return JSON.stringify(await this.web.put(value, "application/octet-stream", signal));
    return JSON.stringify(await this.web.put(Buffer.from(text), "application/json", signal));
  }

  /** Returns the arguments of a call, which may be an asset. */
  async arguments(message: CallMessage, signal: AbortSignal): Promise<{ args: unknown[]; kwargs: Record<string, unknown> }> {
    let given: unknown = message;
    if (message.arguments !== undefined) {
      if (!this.web) throw problem("payload_too_large", "this node takes no arguments as assets");
      const { data } = await this.web.get(message.arguments, signal);
      given = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data));
    }
    if (!isObject(given)) throw problem("bad_encoding", "the arguments cannot be read");
    const args = Array.isArray(given.args) ? (given.args as unknown[]) : [];
    return {
      args: decodeBytes(args) as unknown[],
      kwargs: decodeBytes(isObject(given.kwargs) ? given.kwargs : {}) as Record<string, unknown>,
    };
  }

  /** Passes the error of a handler on to the program. */
  report(error: unknown, call: NodeCall): void {
    this.#options.onError?.(error, call);
  }

  publish(subject: string, body: string): void {
    if (this.connection && !this.connection.isClosed()) this.connection.publish(subject, body);
  }

  /** Finishes the calls that run, leaves, and closes the connection. */
  async leave(): Promise<void> {
    if (this.finished) return;
    this.finished = this.draining = true;
    const { connection, epoch } = this;
    if (!connection) return;
    const request = (drain: boolean) =>
      connection
        .request(this.#prefix + "leave", JSON.stringify({ epoch, reason: "leave", drain }), { timeout: 2000 })
        .catch(() => undefined);
    if (epoch) await request(true);
    const until = Date.now() + drainTimeout;
    let waited = false;
    while (this.#calls.size > 0 && Date.now() < until) {
      waited = true;
      await sleep(20);
    }
    if (waited) await sleep(leaveDelay);
    if (epoch) await request(false);
    await connection.close().catch(() => undefined);
  }

  /** Ends the session: its calls are cancelled, because their answers would belong to no call. */
  end(reason: string): void {
    clearInterval(this.#beats);
    this.epoch = 0;
    this.connection = this.drain = undefined;
    for (const call of [...this.#calls.values()]) call.cancel(problem("cancelled", reason));
    this.#calls.clear();
    this.#queue = [];
    this.#streams = this.#outstanding = 0;
  }
}

/** One call and its answer. */
class Call {
  readonly message: CallMessage;
  readonly declared: Declared | undefined;
  readonly controller = new AbortController();
  readonly streams: boolean;
  outstanding = 0;
  wake: () => void = () => undefined;
  readonly #session: Session;
  readonly #reply: string;
  readonly #head: string;
  readonly #ack: NodeJS.Timeout;
  readonly #deadline: NodeJS.Timeout;
  #sequence = 0;
  #over = false;

  constructor(session: Session, message: CallMessage, reply: string, declared: Declared | undefined, timeoutMs: number) {
    this.#session = session;
    this.message = message;
    this.declared = declared;
    this.streams = Boolean(message.stream && declared?.stream);
    this.#reply = reply;
    this.#head = `{"call_id":${JSON.stringify(message.call_id)},"epoch":${message.epoch},"seq":`;
    this.#ack = setTimeout(() => {
      if (this.#sequence === 0) this.#frame("ack", "");
    }, ackDelay);
    const given = message.deadline_ms > 0 ? message.deadline_ms : undefined;
    const allowed = Math.min(given ?? Infinity, declared?.timeoutMs ?? given ?? timeoutMs);
    this.#deadline = setTimeout(() => this.cancel(problem("timeout", "the call took longer than it may")), Math.min(allowed, 2 ** 31 - 1));
  }

  /** Ends the handler. The answer is the error, unless the call has been answered. */
  cancel(reason: JunctorError): void {
    this.controller.abort(reason);
    this.fail(reason);
    this.wake();
  }

  #frame(type: string, members: string, last = false): void {
    if (this.#over) return;
    this.#over = last;
    this.#session.publish(this.#reply, `${this.#head}${this.#sequence++},"type":"${type}"${members}}`);
    if (!last) return;
    clearTimeout(this.#ack);
    clearTimeout(this.#deadline);
    this.#session.done(this);
  }

  /** Answers with an error. */
  fail(e: JunctorError): void {
    const code = e.reason in reasons ? e.reason : (nearest[e.code] ?? "execution_failed");
    const details = { ...e.details, ...(e.reason && e.reason !== code && { reason: e.reason }) };
    this.#frame(
      "error",
      ',"error":' +
        JSON.stringify({
          code,
          message: clip(e.message),
          ...(errorTypes[code] && { type: errorTypes[code] }),
          node_id: this.#session.id,
          function: String(this.message.function).slice(0, 200),
          retryable: code === "node_overloaded" || code === "connection_failed",
          ...(e.retryAfter > 0 && { retry_after_ms: e.retryAfter }),
          ...(Object.keys(details).length > 0 && { details }),
        }),
      true,
    );
  }

  async run(): Promise<void> {
    const signal = this.controller.signal;
    if (signal.aborted) return;
    const began = performance.now();
    const f = this.declared!;
    const { args, kwargs } =
      this.message.arguments === undefined && !this.message.args && !this.message.kwargs
        ? { args: [], kwargs: {} }
        : await this.#arguments();
    if (signal.aborted) return;
    const call: NodeCall = {
      signal,
      id: this.message.call_id,
      function: f.name,
      caller: String(this.message.caller?.id ?? ""),
      args,
      kwargs,
      ...(this.message.idempotency_key && { idempotencyKey: this.message.idempotency_key }),
      progress: (fraction, message) =>
        this.#frame(
          "progress",
          `,"fraction":${Math.min(Math.max(Number(fraction) || 0, 0), 1)}${message ? `,"message":${JSON.stringify(message.slice(0, 1000))}` : ""}`,
        ),
    };
    try {
      const input = inputOf(args, kwargs, f.parameters);
      if (f.parameters) checkInput(f.parameters, input);
      const value = f.handle(input as never, call);
      const elapsed = () => `,"exec_ms":${Math.round(performance.now() - began)}`;
      if (!isAsyncIterable(value)) {
        const text = await this.#session.value(await value, Infinity, signal);
        return this.#frame("result", `,"value":${text}${elapsed()}`, true);
      }
      const list: unknown[] = [];
      let chunks = 0;
      let bytes = 0;
      for await (const chunk of value) {
        signal.throwIfAborted();
        if (!this.streams) {
          list.push(chunk);
          continue;
        }
        const text = await this.#session.value(chunk, maxChunk, signal);
        const size = Buffer.byteLength(text);
        await this.#session.reserve(this, size);
        this.#frame("chunk", `,"value":${text}`);
        chunks++;
        bytes += size;
      }
      if (this.streams) this.#frame("done", `,"chunks":${chunks},"bytes":${bytes}${elapsed()}`, true);
      else this.#frame("result", `,"value":${await this.#session.value(list, Infinity, signal)}${elapsed()}`, true);
    } catch (thrown) {
      if (!signal.aborted) this.#session.report(thrown, call);
      this.fail(
        thrown instanceof JunctorError ? thrown : problem("execution_failed", thrown instanceof Error ? thrown.message : String(thrown)),
      );
    }
  }

  async #arguments(): Promise<{ args: unknown[]; kwargs: Record<string, unknown> }> {
    try {
      return await this.#session.arguments(this.message, this.controller.signal);
    } catch (thrown) {
      this.cancel(thrown instanceof JunctorError ? thrown : problem("bad_encoding", "the arguments cannot be read"));
      return { args: [], kwargs: {} };
    }
  }
}

/** Returns the input of a handler: the named arguments, with the positional ones under the names of the schema. */
function inputOf(args: unknown[], kwargs: Record<string, unknown>, parameters: ObjectSchema | undefined): unknown {
  if (args.length === 0) return kwargs;
  if (args.length === 1 && Object.keys(kwargs).length === 0 && isObject(args[0])) return args[0];
  const names = Object.keys(parameters?.properties ?? {});
  if (args.length > names.length) {
    throw problem("invalid_params", `the function takes at most ${names.length} arguments by position, and ${args.length} are given`);
  }
  const named = { ...kwargs };
  for (const [i, value] of args.entries()) {
    const name = names[i]!;
    if (Object.hasOwn(named, name)) throw problem("invalid_params", `the argument ${name} is given twice`);
    named[name] = value;
  }
  return named;
}

function isAsyncIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}

function percent(n: number): number {
  return Math.round(Math.min(Math.max(n, 0), 100) * 10) / 10;
}

function cpuTimes(): { idle: number; total: number } {
  let idle = 0;
  let total = 0;
  for (const { times } of cpus()) {
    idle += times.idle;
    total += times.user + times.nice + times.sys + times.idle + times.irq;
  }
  return { idle, total };
}
