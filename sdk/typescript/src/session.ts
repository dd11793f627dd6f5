/** The sessions of a node with a gateway, and the calls that run in them. */
import { cpus, totalmem } from "node:os";
import type { Msg, NatsConnection } from "@nats-io/nats-core";
import { isObject, JunctorError } from "./errors.js";
import type { Web } from "./identity.js";
import { sleep } from "./internal.js";
import type { Handler, NodeCall, NodeOptions } from "./node.js";
import { clip, decodeBytes, encode, errorTypes, type JoinReply, nearest, problem, reasons, reserved, subjectToken } from "./nodewire.js";
import { checkInput, type ObjectSchema } from "./schema.js";

/** A function as it was declared. */
export interface Declared {
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

/** A call of the gateway. */
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
const maxStreams = 32;
/** The bytes of all streams that may be on their way. */
const maxOut = 4 << 20;
const ackDelay = 200;
const drainTimeout = 30_000;
const leaveDelay = 250;

/** One session after the other: what has been agreed with the gateway, and the calls that run. */
export class Session {
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
    if (!f && reserved.has(message.function)) {
      return call.fail(
        problem(
          "denied",
          `node '${this.id}' takes no skills: the TypeScript SDK cannot confine the code of a skill. Install it on a node of the Go package host/device.`,
        ),
      );
    }
    if (!f) {
      const known = [...this.#functions.keys()].slice(0, 20).join(", ");
      return call.fail(
        problem(
          "function_not_found",
          `node '${this.id}' has no function ${String(message.function).slice(0, 200)}; it has ${known}`,
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
      progress: (fraction, message) => {
        const text = message ? `,"message":${JSON.stringify(message.slice(0, 1000))}` : "";
        this.#frame("progress", `,"fraction":${Math.min(Math.max(Number(fraction) || 0, 0), 1)}${text}`);
      },
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
