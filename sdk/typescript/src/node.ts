import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Msg, NatsConnection } from "@nats-io/nats-core";
import { isObject, JunctorError } from "./errors.js";
import { Folder, type Identity, type NodeKey, Web } from "./identity.js";
import { checkToken, sleep } from "./internal.js";
import { encode, type JoinReply, problem, reserved, subjectToken, wireError } from "./nodewire.js";
import type { FromSchema, ObjectSchema } from "./schema.js";
import { type Declared, Session } from "./session.js";

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
  /** Address of the gateway, https://host; http on this machine only. A list is tried in order. If absent, JUNCTOR_GATEWAY. */
  gateway?: string | string[];
  /** The operator's node token. With a dir it is needed for the first join only. */
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

/** The largest call of the gateway. */
const maxUpward = 512 << 10;
const joinTimeout = 15_000;
const connectTimeout = 10_000;
/** Refusals of the credential in a row after which the node gives up. */
const maxRefusals = 3;
const nodeGrammar = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const functionGrammar = /^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$/;

function gateways(given: string | string[] | undefined): URL[] {
  const list = (Array.isArray(given) ? given : (given ?? process.env.JUNCTOR_GATEWAY ?? "").split(","))
    .map((s) => s.trim())
    .filter((s) => s !== "");
  if (list.length === 0 || list.length > 16) {
    throw new JunctorError("invalid_input", "a node needs the address of 1 to 16 gateways", { hint: "pass gateway, or set JUNCTOR_GATEWAY" });
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
    this.#token = checkToken(options.token ?? "");
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

  /** The number of the session, which grows with each join; 0 before the first one. */
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
