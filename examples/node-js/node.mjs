// A node in plain Node (22 or newer), without a dependency: it joins a gateway by the
// operator's token, and others call its functions. What it speaks is docs/nodes.md,
// "The wire"; copy it and put your own work in the place of functions.
//
//   node node.mjs URL --node-token-file FILE [--id ID]
//
// It prints one JSON line when it has joined. Then, from elsewhere:
//
//   junctor call ID count '{"to":5}' --stream

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname, loadavg, availableParallelism, freemem, totalmem } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

// ---- The work ---------------------------------------------------------------

// Each is called with its arguments by name, and {args, signal}: signal ends with the
// call. A generator is a stream.
const functions = {
  greet: {
    description: "Greet somebody.", effect: "read",
    input_schema: { type: "object", properties: { name: { type: "string" } } },
    run: async ({ name = "you" }) => `hello, ${name}`,
  },
  wait: {
    description: "Wait so many seconds.", effect: "read",
    run: async ({ seconds = 1 }, { signal }) => { await sleep(seconds * 1000, null, { signal }); return "done"; },
  },
  count: {
    description: "Count up, one by one.", effect: "read",
    run: async function* ({ to = 10, size = 0 }) {
      for (let n = 1; n <= to; n++) yield size ? { n, pad: "x".repeat(size) } : n;
    },
  },
};

// ---- The node ---------------------------------------------------------------

const MAX_CHUNK = 128 << 10, MAX_STREAMS = 32, MAX_CALLS = 64, MAX_OUT = 4 << 20;

const flags = new Map();
const [url, ...rest] = process.argv.slice(2);
for (let i = 0; i < rest.length; i += 2) flags.set(rest[i], rest[i + 1]);
if (!url || url.startsWith("-") || !flags.get("--node-token-file")) fail("usage: node node.mjs URL --node-token-file FILE [--id ID]");
const token = readFileSync(flags.get("--node-token-file"), "utf8").trim();
const id = flags.get("--id") ?? (hostname().replace(/[^A-Za-z0-9._-]/g, "-").replace(/^[^A-Za-z0-9]+/, "") || "node");
const instance = randomUUID();
const token1 = id.replace(/[^A-Za-z0-9_-]/g, (c) => [...Buffer.from(c)].map((b) => "=" + b.toString(16).toUpperCase().padStart(2, "0")).join(""));

let epoch = 0, last = 0, beat = () => {}, inline = 512 << 10, windowSize = 256 << 10, beats = null, seq = 0, out = 0, leaving = false;
const calls = new Map();

function fail(text) { console.error("node-js: " + text); process.exit(1); }

class Failure extends Error {
  constructor(code, message, more = {}) { super(message); Object.assign(this, { code, more }); }
}

// ---- The bus: as much of NATS as a node needs -------------------------------

// Bus is one connection. It ends for good when it breaks; the next is another one.
class Bus {
  constructor(socket) {
    this.socket = socket; this.buffer = Buffer.alloc(0); this.waiting = new Map(); this.heard = () => {};
    this.inbox = `_INBOX.${token1}.${randomUUID().replaceAll("-", "")}`; this.asked = 0; this.pongs = 0;
  }

  static open() {
    const address = new URL("/nodes/connect", url);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    const bus = new Bus(socket);
    bus.closed = new Promise((resolve) => { socket.onclose = () => resolve(); });
    return new Promise((resolve, reject) => {
      bus.ready = resolve; bus.refused = reject;
      socket.onerror = () => reject(new Error("the gateway is not reached"));
      socket.onmessage = (m) => { try { bus.read(Buffer.from(m.data)); } catch (e) { reject(e); socket.close(); } };
      bus.closed.then(() => { reject(new Error("the connection was closed")); for (const w of bus.waiting.values()) w.reject(new Error("the connection broke")); });
    });
  }

  send(...parts) { if (this.socket.readyState === 1) this.socket.send(Buffer.concat(parts.map((p) => Buffer.from(p)))); }

  read(data) {
    this.buffer = Buffer.concat([this.buffer, data]);
    for (;;) {
      const end = this.buffer.indexOf("\r\n");
      if (end < 0) return;
      const line = this.buffer.subarray(0, end).toString();
      const [verb, ...words] = line.split(/\s+/);
      if (/^H?MSG$/i.test(verb)) {
        const size = Number(words.at(-1)), head = verb.length === 4 ? Number(words.at(-2)) : 0;
        if (this.buffer.length < end + 2 + size + 2) return; // the rest is on its way
        const body = this.buffer.subarray(end + 2, end + 2 + size);
        this.buffer = this.buffer.subarray(end + 2 + size + 2);
        const plain = words.slice(0, head ? -2 : -1);
        this.message(plain[0], plain[2], body.subarray(0, head).toString(), body.subarray(head).toString());
        continue;
      }
      this.buffer = this.buffer.subarray(end + 2);
      switch (verb.toUpperCase()) {
        case "INFO": // it may come again, and is news of the server then
          if (this.greeted) break;
          this.greeted = true;
          this.send(`CONNECT ${JSON.stringify({ verbose: false, pedantic: false, headers: true, no_responders: true, lang: "javascript", version: "1", protocol: 1, name: id, auth_token: token })}\r\nPING\r\n`);
          break;
        case "PING": this.send("PONG\r\n"); break;
        case "PONG": this.pongs = 0; this.ready(this); break;
        case "-ERR":
          if (/authorization|authentication/i.test(line)) this.refused(Object.assign(new Error("the gateway refused the token"), { refused: true }));
          else console.error("node-js: " + line);
      }
    }
  }

  message(subject, reply, head, body) {
    const w = this.waiting.get(subject);
    if (!w) return this.heard(subject, reply, body);
    this.waiting.delete(subject);
    if (/^NATS\/1\.0 503/.test(head)) w.reject(new Error("nobody answers"));
    else w.resolve(JSON.parse(body));
  }

  subscribe(pattern, sid) { this.send(`SUB ${pattern} ${sid}\r\n`); }

  publish(subject, value, reply = "") {
    const body = Buffer.from(typeof value === "string" ? value : JSON.stringify(value));
    this.send(`PUB ${subject} ${reply}${reply && " "}${body.length}\r\n`, body, "\r\n");
  }

  request(subject, value) {
    if (!this.asked) this.subscribe(this.inbox + ".*", 1);
    const reply = `${this.inbox}.${++this.asked}`;
    const answer = new Promise((resolve, reject) => {
      this.waiting.set(reply, { resolve, reject });
      setTimeout(() => { this.waiting.delete(reply); reject(new Error("no answer within 15 s")); }, 15_000).unref();
    });
    this.publish(subject, value, reply);
    return answer;
  }
}

// ---- The session -------------------------------------------------------------

const entries = () => Object.entries(functions).map(([name, f]) => {
  const stream = f.run.constructor.name === "AsyncGeneratorFunction";
  return { name, description: f.description, version: "1.0.0", tags: [], priority: 5, execution_mode: "normal", timeout_seconds: null, is_async: true, is_generator: stream, stream, effect: f.effect, input_schema: f.input_schema, max_concurrent: 0 };
});

// join returns true when the node is in, false to try again.
async function join(bus) {
  endCalls("the session is renewed");
  epoch = 0;
  const reply = await bus.request(`v1.gw.${token1}.join`, {
    proto: 1, node_id: id, instance, epoch: last, software: { name: "node-js", version: "1.0.0" }, os: process.platform, arch: process.arch,
    labels: ["example"], functions: entries(), revision: 1, max_concurrent: MAX_CALLS, accepting: true,
  });
  if (!reply.ok) {
    if (["denied", "unsupported_version", "invalid_params", "bad_encoding", "payload_too_large"].includes(reply.error.code) || reply.error.details?.reason === "superseded") fail(reply.error.message);
    throw new Error(reply.error.message);
  }
  if (!last) console.log(JSON.stringify({ node_id: id, epoch: reply.epoch, pid: process.pid }));
  epoch = last = reply.epoch;
  inline = reply.max_inline - 4096; windowSize = reply.window;
  clearInterval(beats);
  beat = () => bus.publish(`v1.gw.${token1}.beat`, {
    epoch, seq: ++seq, revision: 1, cpu: Math.min(100, 100 * loadavg()[0] / availableParallelism()), mem: 100 * (1 - freemem() / totalmem()), gpu: 0,
    active: calls.size, queued: 0, accepting: !leaving && calls.size < MAX_CALLS,
  });
  beats = setInterval(beat, reply.heartbeat_ms);
  beat();
}

function control(bus, c) {
  if (c.epoch !== last) return; // of another session
  const call = calls.get(c.call_id);
  switch (c.type) {
    case "cancel": call?.abort.abort(new Failure("cancelled", c.reason || "the call was cancelled")); break;
    case "credit": call?.credit(c.bytes); break;
    case "rejoin": join(bus).catch(() => bus.socket.close()); break;
    case "superseded": fail(`another process has joined as ${id}`); break;
    case "drain": leave(bus); break;
    case "beat": beat(); break;
    case "update": bus.request(`v1.gw.${token1}.update`, { epoch, revision: 1, functions: entries(), labels: ["example"] }).catch(() => {}); break;
  }
}

const endCalls = (why) => { for (const c of calls.values()) c.abort.abort(new Failure("cancelled", why)); };

// Call is one call and its answer.
class Call {
  constructor(bus, message, reply) {
    Object.assign(this, { bus, message, reply, seq: 0, over: false, abort: new AbortController(), outstanding: 0, wake: () => {} });
    this.window = message.window || windowSize;
    this.aborted = new Promise((_, reject) => this.abort.signal.addEventListener("abort", () => reject(this.abort.signal.reason), { once: true }));
    this.aborted.catch(() => {}); // whoever waits for it says so
    this.ack = setTimeout(() => { if (!this.seq) this.frame("ack"); }, 200);
    if (message.deadline_ms) this.deadline = setTimeout(() => this.abort.abort(new Failure("timeout", "the call took longer than it may")), message.deadline_ms);
  }

  frame(type, more = {}) {
    if (this.over) return;
    this.over = ["result", "done", "error"].includes(type);
    this.bus.publish(this.reply, { call_id: this.message.call_id, epoch: this.message.epoch, seq: this.seq++, type, ...more });
  }

  credit(bytes) { const n = Math.min(bytes, this.outstanding); this.outstanding -= n; out -= n; for (const c of calls.values()) c.wake(); }

  // chunk sends one when there is room for it.
  async chunk(value) {
    const size = Buffer.byteLength(JSON.stringify(value));
    if (size > MAX_CHUNK) throw new Failure("payload_too_large", `a chunk has ${size} bytes; the limit is ${MAX_CHUNK}`);
    while (this.outstanding >= this.window || out + size > MAX_OUT) {
      await Promise.race([new Promise((resolve) => { this.wake = resolve; }), this.aborted]);
    }
    this.abort.signal.throwIfAborted();
    this.outstanding += size; out += size;
    this.frame("chunk", { value });
    return size;
  }

  async run() {
    const { function: name, args = [], kwargs = {}, stream } = this.message, began = Date.now();
    const f = Object.hasOwn(functions, name) ? functions[name] : undefined;
    if (!f) throw new Failure("function_not_found", `there is no function ${name} on node '${id}'; there are ${Object.keys(functions).join(", ")}`);
    if (this.message.arguments) throw new Failure("payload_too_large", "this node takes no arguments as assets");
    const work = f.run({ ...(args.length === 1 && typeof args[0] === "object" ? args[0] : {}), ...kwargs }, { args, signal: this.abort.signal });
    const exec = () => ({ exec_ms: Date.now() - began });
    const carry = async () => {
      if (!work[Symbol.asyncIterator]) return this.result((await work) ?? null, exec());
      const list = [];
      let chunks = 0, bytes = 0;
      for await (const value of work) {
        this.abort.signal.throwIfAborted();
        if (!stream) { list.push(value); continue; }
        bytes += await this.chunk(value); chunks++;
      }
      return stream ? this.frame("done", { chunks, bytes, ...exec() }) : this.result(list, exec());
    };
    await Promise.race([carry(), this.aborted]);
  }

  result(value, more) {
    const size = Buffer.byteLength(JSON.stringify(value));
    if (size > inline) throw new Failure("payload_too_large", `the result has ${size} bytes; the limit is ${inline}`);
    this.frame("result", { value, ...more });
  }

  async answer() {
    try { await this.run(); } catch (e) {
      const error = e instanceof Failure ? e : new Failure("execution_failed", String(e?.message ?? e));
      this.frame("error", { error: { code: error.code, message: error.message.slice(0, 4000), node_id: id, function: this.message.function, retryable: false, ...error.more } });
    } finally {
      clearTimeout(this.ack); clearTimeout(this.deadline);
      this.credit(this.outstanding);
      calls.delete(this.message.call_id);
    }
  }
}

function called(bus, message, reply) {
  if (message.epoch !== epoch || calls.has(message.call_id) || !reply?.startsWith(`v1.gw.${token1}.reply.`)) return;
  const call = new Call(bus, message, reply);
  const busy = leaving || calls.size >= MAX_CALLS || (message.stream && [...calls.values()].filter((c) => c.message.stream).length >= MAX_STREAMS);
  if (busy) {
    clearTimeout(call.ack); clearTimeout(call.deadline);
    return call.frame("error", { error: { code: "node_overloaded", type: "RemoteExecutionError", message: `Node '${id}' is busy. Please retry later.`, node_id: id, retryable: true, retry_after_ms: 1000 } });
  }
  calls.set(message.call_id, call);
  call.answer();
}

// leave finishes what runs, says goodbye and ends.
async function leave(bus) {
  if (leaving) return;
  leaving = true;
  const request = (drain) => bus.request(`v1.gw.${token1}.leave`, { epoch, reason: "leave", drain }).catch(() => {});
  if (epoch) await request(true);
  for (let i = 0; calls.size && i < 300; i++) await sleep(100);
  await sleep(250);
  if (epoch) await request(false);
  process.exit(0);
}

let current = null;
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (current ? leave(current) : process.exit(0)));

for (let n = 1, refusals = 0; !leaving; n++) {
  try {
    const bus = current = await Bus.open();
    bus.heard = (subject, reply, body) => {
      const message = JSON.parse(body);
      if (subject.endsWith(".call")) called(bus, message, reply);
      else control(bus, message);
    };
    bus.subscribe(`v1.host.${token1}.>`, 2);
    const pinging = setInterval(() => { if (++bus.pongs > 2) bus.socket.close(); else bus.send("PING\r\n"); }, 5000);
    try {
      await join(bus);
      n = 1; refusals = 0;
      await bus.closed;
    } finally { clearInterval(pinging); clearInterval(beats); bus.socket.close(); }
  } catch (e) {
    if (e.refused && !last && ++refusals >= 3) fail(e.message);
    console.error("node-js: " + e.message);
  }
  current = null; epoch = 0;
  endCalls("the connection broke");
  const pause = Math.min(60_000, 1000 * 1.5 ** (n - 1));
  await sleep(pause / 2 + pause * Math.random());
}
