import { errorFromJSON, isObject, JunctorError } from "./errors.js";
import { bodyOf, checkToken, sleep, tooLarge } from "./internal.js";

export { errorCodes, JunctorError, type ErrorCode, type ErrorFields } from "./errors.js";

/** Options of a {@link Client}. */
export interface ClientOptions {
  /** Address of the server, such as http://127.0.0.1:7777. If absent, JUNCTOR_URL of the environment. */
  url?: string;
  /** Bearer token. If absent, JUNCTOR_TOKEN of the environment. It is never part of an error or a log. */
  token?: string;
  /** Replaces the global fetch. */
  fetch?: typeof globalThis.fetch;
  /** Deadline of a request that sets none, in milliseconds; default 10 minutes. Streams have no deadline. */
  timeoutMs?: number;
  /** Largest answer in bytes, and largest line of a stream; default 64 MiB. */
  maxAnswerBytes?: number;
}

/** Options of every request. */
export interface RequestOptions {
  /** Ends the request when it is aborted; the server then cancels the call. */
  signal?: AbortSignal;
  /** Deadline in milliseconds. If absent, that of the client. */
  timeoutMs?: number;
}

/** How a call waits for an approval. */
export interface ApprovalWait {
  /** How long to wait for the decision, in milliseconds; default 10 minutes. */
  timeoutMs?: number;
  /** First pause between two attempts, in milliseconds; default 1 s. Each pause is half as long again, up to 10 s. */
  intervalMs?: number;
  /** Receives the error that names the approval, once for each approval. */
  onWait?: (error: JunctorError) => void;
}

/** Options of a call. */
export interface CallOptions extends RequestOptions {
  /** Deadline of the work in milliseconds, which the server enforces. If absent, the server's default. */
  timeoutMs?: number;
  /** Selects the provider, for example `{ node: "laptop" }` or `{ provider: "ext:endpoint:cloud" }`. */
  select?: Record<string, string>;
  /** The same key with the same input runs once; a repeated call receives the first result. */
  idempotencyKey?: string;
  /** Session of the call, to which grants can be limited. */
  session?: string;
  /** The context in which providers are selected. */
  context?: Record<string, unknown>;
  /** true for the least loaded node, the name of a strategy, or an object. */
  loadBalancing?: boolean | string | Record<string, unknown>;
  /**
   * Waits until a person has decided if the call needs an approval, and repeats it with the same input and key.
   * Without it such a call fails with the code approval_required.
   */
  waitForApproval?: boolean | ApprovalWait;
}

/** Options of a call that streams. */
export type StreamOptions = Omit<CallOptions, "waitForApproval">;

/** The record of one invocation. Further members are passed on unchanged. */
export interface Invocation {
  /** Id of the invocation, run_…. */
  id: string;
  /** The state in which it ended, such as completed or failed. */
  state: string;
  /** The provider that ran it. */
  provider?: string;
  /** The canonical action. */
  action?: string;
  /** Whether the result is that of an earlier call with the same idempotency key. */
  replayed?: boolean;
  [member: string]: unknown;
}

/** The result of a call with its record. */
export interface Invoked<T = unknown> {
  result: T;
  invocation: Invocation;
}

/** One action of the catalog. Further members are passed on unchanged. */
export interface Capability {
  /** The name by which it is called. */
  name: string;
  /** The name that does not change when another provider has the same one. */
  canonicalAction: string;
  title?: string;
  description?: string;
  /** JSON Schema of the input. */
  inputSchema?: Record<string, unknown>;
  /** The providers that offer it. */
  providers: string[];
  /** Whether the caller must select a provider. */
  requiresSelection: boolean;
  [member: string]: unknown;
}

/** One match of a search. */
export interface Found {
  name: string;
  description?: string;
  effect?: string;
}

/** One action in detail. */
export interface Described extends Found {
  requiresSelection: boolean;
  /** JSON Schema of the input. */
  schema?: Record<string, unknown>;
  [member: string]: unknown;
}

/** One part of a stream of progress. */
export interface Progress {
  /** Amount done, of total if total is given. */
  progress: number;
  total?: number;
  message?: string;
  stage?: string;
  /** A chunk of the result, if the provider streams. */
  data?: unknown;
}

/** The states of an approval. */
export type ApprovalState = "pending" | "approved" | "denied" | "expired" | "superseded" | "ended";

/** A decision about an approval: for this call, for one hour, for its session, always, or not. */
export type Decision = "once" | "timed" | "session" | "always" | "deny";

/** One approval. Further members are passed on unchanged. */
export interface Approval {
  /** Id of the approval, apr_…. */
  id: string;
  kind: string;
  /** The caller. */
  principal: string;
  capability: string;
  effect: string;
  /** The call in words, for the person who decides. */
  summary: string;
  state: ApprovalState;
  decision?: Decision;
  decided_by?: string;
  asked: string;
  expires?: string;
  [member: string]: unknown;
}

/** A reply of a conversation. Type is text, confirmation or another kind of the server. */
export interface ChatReply {
  type: string;
  /** The message as it was stored. */
  message: { seq: number; role: string; text: string; time: string; [member: string]: unknown };
  /** The result of a command. */
  result?: unknown;
  /** The error of a command; the text explains it to people. */
  error?: JunctorError;
  invocation?: Invocation;
  /** The run of the agent that wrote the reply, or that waits for an approval. */
  run?: string;
  /** The last event of the run before the reply. */
  event?: string;
  [member: string]: unknown;
}

/** One event of a reply: a piece of its text, progress of a call, or the whole reply as the last one. */
export type ChatEvent = { type: "text"; text: string } | { type: "progress"; progress: Progress } | { type: "reply"; reply: ChatReply };

/** One run of the agent. Further members are passed on unchanged. */
export interface Run {
  id: string;
  session: string;
  /** working, waiting, completed, failed or cancelled. */
  state: string;
  /** The first approval that a waiting run waits for. */
  approval?: string;
  approvals?: string[];
  error?: unknown;
  modelCalls: number;
  toolCalls: number;
  created: string;
  updated: string;
  [member: string]: unknown;
}

/** One event of a run. Further members are passed on unchanged. */
export interface RunEvent {
  id: string;
  /** text, text_reset, call, park or end. */
  type: string;
  text?: string;
  [member: string]: unknown;
}

/** The states of a task. */
export type TaskState =
  "submitted" | "working" | "input_required" | "auth_required" | "completed" | "failed" | "rejected" | "cancelled" | "interrupted";

/** One task. Further members are passed on unchanged. */
export interface Task {
  /** Id of the task, tsk_…. */
  id: string;
  kind: string;
  owner: string;
  state: TaskState;
  /** A sentence for people. */
  status?: string;
  /** The open questions. */
  requests?: { key: string; method: string; params?: unknown; approval?: string; asked: string }[];
  result?: unknown;
  error?: unknown;
  created: string;
  updated: string;
  version: number;
  [member: string]: unknown;
}

/** A page of a list. If next is not empty, it is the cursor of the next page. */
export interface Page<T> {
  items: T[];
  next: string;
}

/** Options of a wait. */
export interface WaitOptions {
  signal?: AbortSignal;
  /** How long to wait, in milliseconds; default 10 minutes. */
  timeoutMs?: number;
  /** First pause between two requests, in milliseconds; default 500 ms. Each pause is half as long again, up to 10 s. */
  intervalMs?: number;
}

/** One event of the server. */
export interface ServerEvent {
  id: number;
  type: string;
  at: string;
  data: Record<string, unknown>;
}

const defaultTimeout = 10 * 60_000;
const maxPause = 10_000;
/** Added to the deadline of a call, so that the error of the server arrives. */
const callGrace = 10_000;

/** A client of a running junctor server. It keeps no connection of its own and needs no closing. */
export class Client {
  /** The address of the server, without a slash at the end. */
  readonly url: string;
  /** Approvals, for tokens of role admin or operator. */
  readonly approvals: Approvals;
  /** Conversations. */
  readonly chat: Chat;
  /** Runs of the agent, which answer messages of conversations. */
  readonly runs: Runs;
  /** Tasks of the caller. */
  readonly tasks: Tasks;
  readonly #token: string;
  readonly #fetch: typeof globalThis.fetch;
  readonly #timeout: number;
  readonly #max: number;

  /** Returns a client; it does not connect. Error: invalid_input if the address or the token is malformed. */
  constructor(options: ClientOptions = {}) {
    const given = options.url ?? environment("JUNCTOR_URL");
    if (!given) {
      throw new JunctorError("invalid_input", "the address of the server is missing", { hint: "pass url, or set JUNCTOR_URL" });
    }
    const url = URL.canParse(given) ? new URL(given) : undefined;
    if (!url || (url.protocol !== "http:" && url.protocol !== "https:") || url.username || url.password || url.search || url.hash) {
      throw new JunctorError("invalid_input", "this is not the address of a server: it must be http or https, without a user or password", {
        hint: "write http://127.0.0.1:7777",
      });
    }
    this.url = (url.origin + url.pathname).replace(/\/+$/, "");
    this.#token = checkToken(options.token ?? environment("JUNCTOR_TOKEN") ?? "");
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#timeout = options.timeoutMs ?? defaultTimeout;
    this.#max = options.maxAnswerBytes ?? 64 << 20;
    this.approvals = new Approvals(this);
    this.chat = new Chat(this);
    this.runs = new Runs(this);
    this.tasks = new Tasks(this);
  }

  /** Returns the actions that the caller may use. */
  async list(options: RequestOptions & { context?: Record<string, unknown> } = {}): Promise<Capability[]> {
    const { context, ...request } = options;
    const answer = await this.request("POST", "/api/v1/catalog/agent", context ?? {}, request);
    return listOf(answer, "actions") as Capability[];
  }

  /** Returns the actions that fit words, the best first. */
  async search(query: string, options: RequestOptions & { limit?: number } = {}): Promise<Found[]> {
    const { limit, ...request } = options;
    const answer = await this.call("catalog.search", { query, ...(limit !== undefined && { limit }) }, request);
    return listOf(answer, "actions") as Found[];
  }

  /** Returns one action with the schema of its input. Error: unknown_capability. */
  async describe(name: string, options: RequestOptions = {}): Promise<Described> {
    return (await this.call("catalog.describe", { name }, options)) as Described;
  }

  /**
   * Calls a capability and returns its result. The target is an action, the id of a capability, or module:kind:name.
   * The client does not retry, except as waitForApproval states.
   */
  async call<T = unknown>(target: string, input?: unknown, options: CallOptions = {}): Promise<T> {
    return (await this.invoke<T>(target, input, options)).result;
  }

  /** Calls a capability and returns its result with the record of the invocation; see {@link Client.call}. */
  async invoke<T = unknown>(target: string, input?: unknown, options: CallOptions = {}): Promise<Invoked<T>> {
    const wait = options.waitForApproval;
    if (!wait) return this.#invoke<T>(target, input, options);
    const { timeoutMs = defaultTimeout, intervalMs = 1000, onWait } = wait === true ? {} : wait;
    const until = Date.now() + timeoutMs;
    // With a key, a call whose answer was lost is not made a second time.
    const repeated = { ...options, idempotencyKey: options.idempotencyKey ?? crypto.randomUUID() };
    let reported: unknown;
    for (let pause = intervalMs; ; pause = Math.min(pause * 1.5, maxPause)) {
      try {
        return await this.#invoke<T>(target, input, repeated);
      } catch (thrown) {
        if (!(thrown instanceof JunctorError) || thrown.code !== "approval_required" || Date.now() >= until) throw thrown;
        if (reported !== thrown.details.approval) {
          reported = thrown.details.approval;
          onWait?.(thrown);
        }
        await sleep(Math.min(pause, Math.max(until - Date.now(), 0)), options.signal);
      }
    }
  }

  async #invoke<T>(target: string, input: unknown, options: CallOptions): Promise<Invoked<T>> {
    const body = invocationOf(target, input, options);
    const timeoutMs = options.timeoutMs === undefined ? undefined : options.timeoutMs + callGrace;
    const answer = await this.request("POST", "/api/v1/invocations", body, { signal: options.signal, timeoutMs });
    if (!isObject(answer) || !isObject(answer.invocation)) throw unexpected();
    return { result: answer.result as T, invocation: answer.invocation as Invocation };
  }

  /**
   * Calls a capability and yields its progress while it runs; the result is the value that the generator returns.
   * Leaving the loop cancels the call.
   */
  async *stream(target: string, input?: unknown, options: StreamOptions = {}): AsyncGenerator<Progress, Invoked, undefined> {
    const body = { ...invocationOf(target, input, options), stream: true };
    for await (const line of this.lines("POST", "/api/v1/invocations", body, options)) {
      if (!isObject(line)) throw unexpected();
      if (line.error !== undefined) throw errorFromJSON(line.error) ?? unexpected();
      if (isObject(line.progress)) yield line.progress as unknown as Progress;
      else return { result: line.result, invocation: line.invocation as Invocation };
    }
    throw new JunctorError("failed", "the stream ended before the result", { reason: "incomplete_stream" });
  }

  /**
   * Calls a function of a node and returns its result. An object passes the arguments by name, an array by position.
   * Without a selector the gateway selects the least loaded node that offers the function.
   */
  async callFunction<T = unknown>(name: string, args?: unknown, options: CallOptions & { node?: string } = {}): Promise<T> {
    return this.call<T>("device.function.invoke", functionInput(name, args), forNode(options));
  }

  /** Calls a function of a node and yields its chunks. A function that does not stream yields its result. */
  async *streamFunction<T = unknown>(
    name: string,
    args?: unknown,
    options: StreamOptions & { node?: string } = {},
  ): AsyncGenerator<T, void, undefined> {
    const stream = this.stream("device.function.invoke", functionInput(name, args), forNode(options));
    let chunks = 0;
    try {
      for (;;) {
        const next = await stream.next();
        if (next.done) {
          if (chunks === 0 && next.value.result !== null) yield next.value.result as T;
          return;
        }
        if (next.value.data === undefined) continue;
        chunks++;
        yield next.value.data as T;
      }
    } finally {
      await stream.return(undefined as never);
    }
  }

  /** Yields the events of the server. It is for tokens of role admin or operator. Leaving the loop ends the stream. */
  async *events(options: { signal?: AbortSignal } = {}): AsyncGenerator<ServerEvent, void, undefined> {
    yield* this.lines("GET", "/api/v1/events", undefined, options) as AsyncGenerator<ServerEvent, void, undefined>;
  }

  /** Sends one request and returns the JSON of its answer. It is for paths that have no method of their own. */
  async request(method: string, path: string, body?: unknown, options: RequestOptions = {}): Promise<unknown> {
    const timeoutMs = options.timeoutMs ?? this.#timeout;
    const deadline = AbortSignal.timeout(timeoutMs);
    const signal = options.signal ? AbortSignal.any([options.signal, deadline]) : deadline;
    try {
      const response = await this.#send(method, path, body, "application/json", signal);
      const text = await bodyOf(response, this.#max);
      if (!response.ok) throw failure(response.status, text);
      return text === "" ? undefined : parsed(text);
    } catch (thrown) {
      throw this.#reported(thrown, signal);
    }
  }

  /** Sends one request and yields the JSON values of its lines. Leaving the loop ends the request. */
  async *lines(
    method: string,
    path: string,
    body?: unknown,
    options: { signal?: AbortSignal } = {},
  ): AsyncGenerator<unknown, void, undefined> {
    const end = new AbortController();
    const signal = options.signal ? AbortSignal.any([options.signal, end.signal]) : end.signal;
    try {
      const response = await this.#send(method, path, body, "application/x-ndjson", signal);
      if (!response.ok) throw failure(response.status, await bodyOf(response, 1 << 20));
      for await (const line of linesOf(response, this.#max)) yield parsed(line);
    } catch (thrown) {
      throw this.#reported(thrown, signal);
    } finally {
      end.abort();
    }
  }

  async #send(method: string, path: string, body: unknown, accept: string, signal: AbortSignal): Promise<Response> {
    // Without the slash the path could continue the name of the host.
    if (!path.startsWith("/")) throw new JunctorError("invalid_input", "the path must begin with a slash");
    const headers: Record<string, string> = { accept, "user-agent": "junctor-typescript" };
    if (this.#token) headers.authorization = "Bearer " + this.#token;
    let text: string | undefined;
    if (body !== undefined) {
      headers["content-type"] = "application/json";
      try {
        text = JSON.stringify(body);
      } catch (cause) {
        throw new JunctorError("invalid_input", "the request cannot be written as JSON", { cause });
      }
    }
    // A redirect would send the token elsewhere.
    const response = await this.#fetch(this.url + path, { method, headers, body: text ?? null, signal, redirect: "manual" });
    if (response.type === "opaqueredirect" || (response.status >= 300 && response.status < 400)) {
      await response.body?.cancel();
      throw new JunctorError("failed", "the server answered with a redirect, which is not followed", {
        reason: "redirect",
        hint: "use the final address of the server",
      });
    }
    return response;
  }

  #reported(thrown: unknown, signal: AbortSignal): JunctorError {
    if (thrown instanceof JunctorError) return thrown;
    if (signal.aborted) {
      const reason: unknown = signal.reason;
      if (reason instanceof JunctorError) return reason;
      if (reason instanceof Error && reason.name === "TimeoutError") {
        return new JunctorError("timeout", "the server did not answer in time", { cause: thrown });
      }
      return new JunctorError("cancelled", "the request was cancelled", { cause: thrown });
    }
    return new JunctorError("unavailable", "no server answers at " + this.url, {
      reason: "service_unavailable",
      hint: "start one with: junctor serve, or pass another address",
      cause: thrown,
    });
  }
}

/** Approvals of a server; see {@link Client.approvals}. */
export class Approvals {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Returns a page of approvals. `after` is the `next` of the page before. */
  async list(options: RequestOptions & { state?: ApprovalState; after?: string } = {}): Promise<Page<Approval>> {
    const { state, after, ...request } = options;
    return pageOf(await this.#client.request("GET", "/api/v1/approvals" + query({ state, after }), undefined, request), "approvals");
  }

  /** Returns one approval. Error: not_found. */
  async get(id: string, options: RequestOptions = {}): Promise<Approval> {
    return member(await this.#client.request("GET", "/api/v1/approvals/" + encodeURIComponent(id), undefined, options), "approval");
  }

  /** Decides an approval of a call, and returns it. */
  async decide(id: string, decision: Decision, options: RequestOptions = {}): Promise<Approval> {
    return member(await this.#client.request("POST", "/api/v1/approvals/" + encodeURIComponent(id), { decision }, options), "approval");
  }

  /** Answers a question: a number or a label of its answers, or a text. */
  async answer(id: string, answer: string, options: RequestOptions = {}): Promise<Approval> {
    return member(await this.#client.request("POST", "/api/v1/approvals/" + encodeURIComponent(id), { answer }, options), "approval");
  }

  /** Waits until an approval is not pending, and returns it. Error: timeout. */
  async wait(id: string, options: WaitOptions = {}): Promise<Approval> {
    return poll(
      (request) => this.get(id, request),
      (a) => a.state !== "pending",
      options,
    );
  }
}

/** Conversations of a server; see {@link Client.chat}. */
export class Chat {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /**
   * Sends a message and returns the reply. If the agent waits for an approval, the reply has the type confirmation
   * and names the run; {@link Runs.wait} waits for its end.
   */
  async send(session: string, text: string, options: RequestOptions = {}): Promise<ChatReply> {
    return replyOf(await this.#client.request("POST", "/api/v1/chat/messages", { session, text }, options));
  }

  /** Sends a message and yields the reply while it is written. Leaving the loop ends the stream. */
  async *stream(session: string, text: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<ChatEvent, void, undefined> {
    for await (const line of this.#client.lines("POST", "/api/v1/chat/messages", { session, text, stream: true }, options)) {
      if (!isObject(line)) throw unexpected();
      if (line.error !== undefined) throw errorFromJSON(line.error) ?? unexpected();
      if (typeof line.text === "string") yield { type: "text", text: line.text };
      else if (isObject(line.progress)) yield { type: "progress", progress: line.progress as unknown as Progress };
      else if (line.reply !== undefined) yield { type: "reply", reply: replyOf(line.reply) };
    }
  }

  /** Returns messages of a conversation, oldest first, that follow the one with the number after. */
  async history(session: string, options: RequestOptions & { after?: number; limit?: number } = {}): Promise<ChatReply["message"][]> {
    const { after, limit, ...request } = options;
    const path = `/api/v1/chat/sessions/${encodeURIComponent(session)}/messages` + query({ after, limit });
    return listOf(await this.#client.request("GET", path, undefined, request), "messages") as ChatReply["message"][];
  }

  /** Deletes a conversation. */
  async forget(session: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.request("DELETE", "/api/v1/chat/sessions/" + encodeURIComponent(session), undefined, options);
  }
}

/** Runs of the agent; see {@link Client.runs}. */
export class Runs {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Returns a page of runs, the newest first. */
  async list(options: RequestOptions & { session?: string; state?: string; limit?: number; cursor?: string } = {}): Promise<Page<Run>> {
    const { session, state, limit, cursor, ...request } = options;
    return pageOf(
      await this.#client.request("GET", "/api/v1/agent/runs" + query({ session, state, limit, cursor }), undefined, request),
      "runs",
    );
  }

  /** Returns one run. Error: not_found. */
  async get(id: string, options: RequestOptions = {}): Promise<Run> {
    return (await this.#client.request("GET", "/api/v1/agent/runs/" + encodeURIComponent(id), undefined, options)) as Run;
  }

  /** Yields the events of a run that follow the one with the id after, until the run ends. */
  async *events(id: string, options: { signal?: AbortSignal; after?: string } = {}): AsyncGenerator<RunEvent, void, undefined> {
    const path = `/api/v1/agent/runs/${encodeURIComponent(id)}/events` + query({ after: options.after });
    yield* this.#client.lines("GET", path, undefined, { signal: options.signal }) as AsyncGenerator<RunEvent, void, undefined>;
  }

  /** Cancels a run. */
  async cancel(id: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.request("POST", `/api/v1/agent/runs/${encodeURIComponent(id)}/cancel`, undefined, options);
  }

  /** Waits until a run has ended, also while it waits for an approval, and returns it. Error: timeout. */
  async wait(id: string, options: WaitOptions = {}): Promise<Run> {
    return poll(
      (request) => this.get(id, request),
      (r) => r.state !== "working" && r.state !== "waiting",
      options,
    );
  }
}

/** Tasks of the caller; see {@link Client.tasks}. */
export class Tasks {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Returns a page of tasks. */
  async list(
    options: RequestOptions & { state?: TaskState; surface?: string; context?: string; limit?: number; cursor?: string } = {},
  ): Promise<Page<Task>> {
    const { state, surface, context, limit, cursor, ...request } = options;
    const path = "/api/v1/tasks" + query({ state, surface, context, limit, cursor });
    return pageOf(await this.#client.request("GET", path, undefined, request), "tasks");
  }

  /** Returns one task. Error: not_found. */
  async get(id: string, options: RequestOptions = {}): Promise<Task> {
    return member(await this.#client.request("GET", "/api/v1/tasks/" + encodeURIComponent(id), undefined, options), "task");
  }

  /** Cancels a task, and returns it. */
  async cancel(id: string, options: RequestOptions = {}): Promise<Task> {
    return member(await this.#client.request("POST", `/api/v1/tasks/${encodeURIComponent(id)}/cancel`, undefined, options), "task");
  }

  /** Answers a question of a task. The key may be empty if there is only one question. */
  async answer(id: string, key: string, answer: Record<string, unknown>, options: RequestOptions = {}): Promise<Task> {
    return member(await this.#client.request("POST", `/api/v1/tasks/${encodeURIComponent(id)}/answer`, { key, answer }, options), "task");
  }

  /** Waits until a task has ended or needs an answer, and returns it. Error: timeout. */
  async wait(id: string, options: WaitOptions = {}): Promise<Task> {
    return poll(
      (request) => this.get(id, request),
      (t) => t.state !== "submitted" && t.state !== "working",
      options,
    );
  }
}

function environment(name: string): string | undefined {
  const process = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process;
  return process?.env?.[name] || undefined;
}

function invocationOf(target: string, input: unknown, options: CallOptions): Record<string, unknown> {
  return {
    target,
    ...(input !== undefined && { input }),
    ...(options.select && { select: options.select }),
    ...(options.session && { session: options.session }),
    ...(options.context && { context: options.context }),
    ...(options.timeoutMs !== undefined && { timeout: Math.max(1, Math.ceil(options.timeoutMs)) + "ms" }),
    ...(options.idempotencyKey && { idempotency_key: options.idempotencyKey }),
    ...(options.loadBalancing !== undefined && { load_balancing: options.loadBalancing }),
  };
}

function functionInput(name: string, args: unknown): Record<string, unknown> {
  return { function: name, args: args ?? {} };
}

function forNode(options: CallOptions & { node?: string }): CallOptions {
  const { node, ...rest } = options;
  if (node) return { ...rest, select: { ...rest.select, node } };
  return rest.select || rest.loadBalancing !== undefined ? rest : { ...rest, loadBalancing: true };
}

function query(values: Record<string, string | number | undefined>): string {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined && value !== "") all.set(name, String(value));
  return all.size > 0 ? "?" + all.toString() : "";
}

function unexpected(): JunctorError {
  return new JunctorError("failed", "the server's answer is not what was expected; is it a junctor server?", { reason: "decode_failed" });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw unexpected();
  }
}

function listOf(answer: unknown, name: string): unknown[] {
  if (!isObject(answer) || !Array.isArray(answer[name])) throw unexpected();
  return answer[name];
}

function member<T>(answer: unknown, name: string): T {
  if (!isObject(answer) || !isObject(answer[name])) throw unexpected();
  return answer[name] as T;
}

function pageOf<T>(answer: unknown, name: string): Page<T> {
  const items = listOf(answer, name) as T[];
  return { items, next: isObject(answer) && typeof answer.next === "string" ? answer.next : "" };
}

function replyOf(answer: unknown): ChatReply {
  if (!isObject(answer) || !isObject(answer.message)) throw unexpected();
  return { ...answer, ...(answer.error !== undefined && { error: errorFromJSON(answer.error) }) } as ChatReply;
}

/** Returns the error of an answer: the one in its body, or else one with code failed that names the status. */
function failure(status: number, text: string): JunctorError {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (isObject(value)) {
    const structured = errorFromJSON(value.error) ?? errorFromJSON({ message: value.error, ...value });
    if (structured) return structured;
    if (typeof value.error === "string") return new JunctorError("failed", `the server answered ${status}: ${value.error.slice(0, 2000)}`);
  }
  return new JunctorError("failed", `the server answered ${status} without an error that can be read`);
}

async function* linesOf(response: Response, max: number): AsyncGenerator<string, void, undefined> {
  if (!response.body) return;
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of response.body) {
    const parts = decoder.decode(chunk, { stream: true }).split("\n");
    parts[0] = rest + parts[0];
    rest = parts.pop() ?? "";
    if (rest.length > max) throw tooLarge(max);
    for (const line of parts) if (line.trim() !== "") yield line;
  }
  if (rest.trim() !== "") yield rest;
}

async function poll<T>(get: (request: RequestOptions) => Promise<T>, done: (value: T) => boolean, options: WaitOptions): Promise<T> {
  const { timeoutMs = defaultTimeout, intervalMs = 500, signal } = options;
  const until = Date.now() + timeoutMs;
  for (let pause = intervalMs; ; pause = Math.min(pause * 1.5, maxPause)) {
    const value = await get({ signal });
    if (done(value)) return value;
    const left = until - Date.now();
    if (left <= 0) throw new JunctorError("timeout", "the wait ended before a decision or a result");
    await sleep(Math.min(pause, left), signal);
  }
}
