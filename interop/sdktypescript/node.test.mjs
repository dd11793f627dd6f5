// Nodes of the SDK against a running gateway, some over a proxy that can be cut.
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, statSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { Client, JunctorError, Node } from "junctor";

const gateway = process.env.INTEROP_URL,
  token = process.env.INTEROP_NODE_TOKEN;
const client = new Client({ url: gateway, token: process.env.INTEROP_ADMIN });
const seen = [];
const ended = [];

/** Runs a node until the tests end, and waits until it has joined. */
async function start(options, declare = () => {}) {
  const states = [];
  const node = new Node({
    gateway,
    token,
    reconnectDelayMs: 100,
    ...options,
    onState: (state, reason) => states.push(reason ? `${state}: ${reason.code}` : state),
  });
  declare(node);
  const stop = new AbortController();
  const run = node.run({ signal: stop.signal });
  const done = run.then(
    () => undefined,
    (e) => e,
  );
  const end = async () => {
    stop.abort();
    return done;
  };
  ended.push(end);
  await until(() => node.state === "connected" || node.state === "closed", "the node has joined");
  return { node, states, done, end };
}
after(async () => {
  await Promise.all(ended.map((end) => end()));
});

async function until(condition, what) {
  for (let i = 0; i < 1000; i++) {
    if (await condition()) return;
    await wait(10);
  }
  assert.fail(`got a timeout after 10 s, want that ${what}`);
}

async function thrown(promise) {
  try {
    await promise;
  } catch (e) {
    assert.ok(e instanceof JunctorError, `got ${e?.stack}, want a JunctorError`);
    assert.ok(!`${e.stack}${JSON.stringify(e)}`.includes(token), "the error contains the token");
    return e;
  }
  assert.fail("got no error, want one");
}

const call = (name, args, options) => client.callFunction(name, args, { node: "ts.1", ...options });
let produced = 0,
  hanging = 0;
const { node } = await start({ id: "ts.1", labels: ["sdk", "user:none"], location: "test", maxConcurrent: 4, maxQueue: 2 }, (node) => {
  node.function("echo", { effect: "read", description: "Returns its input." }, (input) => input);
  node.function(
    "add",
    { effect: "read", parameters: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] } },
    ({ a, b }) => a + b,
  );
  node.function("bytes", { effect: "read" }, ({ n }) => new Uint8Array(n).fill(7));
  node.function("size", { effect: "read" }, ({ text }) => text.length);
  node.function("large", { effect: "read" }, ({ n }) => "x".repeat(n));
  node.function("fail", { effect: "read" }, () => {
    throw new Error("the lamp is broken");
  });
  node.function("refuse", { effect: "read" }, () => {
    throw new JunctorError("denied", "not now", { reason: "consent_denied" });
  });
  node.function(
    "hang",
    { effect: "read" },
    (_, { signal }) =>
      new Promise(
        (resolve) =>
          hanging++ >= 0 &&
          signal.addEventListener("abort", () => {
            seen.push(signal.reason.code);
            resolve();
          }),
      ),
  );
  node.function("slow", { effect: "read" }, async (_, { progress }) => {
    progress(0.5, "half");
    await wait(50);
    return "done";
  });
  node.function("count", { effect: "read" }, async function* ({ to = 5, size = 0 }, { signal }) {
    signal.addEventListener("abort", () => seen.push(signal.reason.code));
    for (let n = 1; n <= to; n++) {
      produced = n;
      yield size ? { n, pad: "x".repeat(size) } : n;
    }
  });
});

test("arguments and results", async () => {
  assert.deepEqual(await call("echo", { a: [1, "é\u2028", null] }), { a: [1, "é\u2028", null] });
  assert.equal(await call("add", { a: 1, b: 2 }), 3);
  assert.equal(await call("add", [3, 4]), 7);
  assert.deepEqual(await call("bytes", { n: 3 }), { $bytes: "BwcH" });
  assert.equal(await call("add", { __args__: [1], __kwargs__: { b: 5 } }), 6);
  const listed = (await client.request("GET", "/api/v1/nodes")).nodes.find((n) => n.node_id === "ts.1");
  assert.deepEqual([listed.status, listed.capabilities, listed.functions.length], ["connected", ["sdk"], 10]);
});

test("large values travel as assets", async () => {
  assert.equal((await call("large", { n: 2 << 20 })).length, 2 << 20);
  assert.equal(await call("size", { text: "y".repeat(1 << 20) }), 1 << 20);
});

test("errors", async () => {
  const got = async (...args) => {
    const e = await thrown(call(...args));
    return [e.code, e.reason, e.message];
  };
  assert.deepEqual(await got("fail", {}), ["failed", "execution_failed", "the lamp is broken"]);
  assert.deepEqual((await got("refuse", {})).slice(0, 2), ["denied", "consent_denied"]);
  assert.deepEqual((await got("add", [1, 2, 3])).slice(0, 2), ["invalid_input", "invalid_params"]);
  assert.equal((await thrown(call("none", {}))).code, "unknown_capability");
  const late = await thrown(call("hang", {}, { timeoutMs: 300 }));
  assert.equal(late.code, "timeout");
  await until(() => seen.length === 1, "the handler has received the end of the call");
  assert.match(seen.pop(), /timeout|cancelled/);
  const stop = new AbortController();
  hanging = 0;
  const cancelled = thrown(call("hang", {}, { signal: stop.signal }));
  await until(() => hanging === 1, "the call has arrived");
  stop.abort();
  assert.equal((await cancelled).code, "cancelled");
  await until(() => seen.length === 1, "the handler has received the cancellation");
  seen.length = 0;
});

test("a full node refuses", async () => {
  const stop = new AbortController();
  const all = Array.from({ length: 8 }, () => call("hang", {}, { signal: stop.signal, timeoutMs: 5000 }).catch((e) => e));
  const first = await Promise.race(all);
  assert.deepEqual([first.code, first.reason], ["overloaded", "node_overloaded"]);
  stop.abort();
  await Promise.all(all);
  await until(() => seen.length >= 4, "the handlers have ended");
  seen.length = 0;
});

test("streams", async () => {
  const collect = async (args) => {
    const list = [];
    for await (const chunk of client.streamFunction("count", args, { node: "ts.1" })) list.push(chunk);
    return list;
  };
  assert.deepEqual(await collect({ to: 3 }), [1, 2, 3]);
  assert.deepEqual(await call("count", { to: 3 }), [1, 2, 3]);
  const many = await collect({ to: 400, size: 4000 });
  assert.deepEqual(
    many.map((c) => c.n),
    Array.from({ length: 400 }, (_, i) => i + 1),
  );
  const progress = [];
  for await (const p of client.stream("device.function.invoke", { function: "slow", args: {} }, { select: { node: "ts.1" } }))
    progress.push(p.message);
  assert.ok(progress.includes("half"), `got ${progress}, want a message half`);
  // A reader that leaves ends the handler long before the end.
  for await (const chunk of client.streamFunction("count", { to: 100_000, size: 10_000 }, { node: "ts.1" })) if (chunk.n === 3) break;
  await until(() => seen.length === 1, "the generator has been cancelled");
  assert.ok(produced < 20_000, `got ${produced} chunks, want fewer than 20000`);
  seen.length = 0;
});

test("functions change while the node runs", async () => {
  node.function("late", { effect: "read" }, () => "here");
  await until(async () => (await call("late", {}).catch(() => "")) === "here", "the new function is called");
  node.removeFunction("late");
  await until(async () => (await call("late", {}).catch((e) => e.code)) === "unknown_capability", "the function is gone");
});

test("calls upward are judged by the gateway", async () => {
  const e = await thrown(node.call("catalog.search", { query: "x" }));
  assert.match(e.code, /denied|unknown_capability/);
});

test("a connection that breaks is made again", async (t) => {
  const sockets = new Set();
  const proxy = createServer((from) => {
    const to = connect(Number(new URL(gateway).port), "127.0.0.1");
    for (const [a, b] of [
      [from, to],
      [to, from],
    ]) {
      sockets.add(a);
      a.pipe(b);
      a.on("error", () => b.destroy());
      a.on("close", () => {
        sockets.delete(a);
        b.destroy();
      });
    }
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => proxy.once("listening", resolve));
  t.after(() => {
    for (const s of sockets) s.destroy();
    proxy.close();
  });
  const ends = [];
  let begun = 0;
  const { node, states, end } = await start({ id: "ts.2", gateway: `http://127.0.0.1:${proxy.address().port}` }, (node) => {
    node.function(
      "hang2",
      { effect: "read" },
      (_, { signal }) =>
        new Promise(
          (resolve) =>
            begun++ >= 0 &&
            signal.addEventListener("abort", () => {
              ends.push(signal.reason.code);
              resolve();
            }),
        ),
    );
    node.function("up", { effect: "read" }, () => "up");
  });
  for (let i = 0; i < 3; i++) {
    const before = node.epoch;
    const running = thrown(client.callFunction("hang2", {}, { node: "ts.2" }));
    await until(() => begun === i + 1, "the call has arrived");
    const broken = performance.now();
    for (const s of sockets) s.destroy();
    await until(() => node.state === "connected" && node.epoch > before, "the node has joined again");
    console.log(`figure: joined again ${Math.round(performance.now() - broken)} ms after the break`);
    assert.equal(await client.callFunction("up", {}, { node: "ts.2" }), "up");
    await running;
  }
  await until(() => ends.length === 3, "the handlers have ended");
  assert.ok(states.filter((s) => s === "connected").length === 4, `got ${states}, want four joins`);
  assert.equal(await end(), undefined);
  await until(
    async () => !(await client.request("GET", "/api/v1/nodes")).nodes.some((n) => n.node_id === "ts.2"),
    "the node is not listed",
  );
});

test("another process by the same id supersedes", async () => {
  const first = await start({ id: "ts.3" });
  const second = await start({ id: "ts.3" });
  const e = await first.done;
  assert.deepEqual([e?.code, e?.reason], ["conflict", "superseded"]);
  assert.equal(second.node.state, "connected");
  await second.end();
});

test("a node drains", async () => {
  let begun = false;
  const { node, done } = await start({ id: "ts.4" }, (node) =>
    node.function("work", { effect: "read" }, async () => {
      begun = true;
      await wait(300);
      return "finished";
    }),
  );
  const running = client.callFunction("work", {}, { node: "ts.4" });
  await until(() => begun, "the call has arrived");
  node.drain();
  assert.equal(await running, "finished");
  assert.equal(await done, undefined);
});

test("keys and enrolment", async () => {
  const dir = join(mkdtempSync(join(tmpdir(), "junctor-node-")), "node");
  const first = await start({ id: "ts.5", dir });
  await first.end();
  assert.equal(statSync(join(dir, "key")).mode & 0o777, 0o600);
  const state = JSON.parse(readFileSync(join(dir, "state.json"), "utf8"));
  assert.deepEqual([state.node_id, state.enrolled, state.public_key[0]], ["ts.5", true, "U"]);
  const began = performance.now();
  const second = await start({ dir, token: "" }, (node) => node.function("big", { effect: "read" }, () => "z".repeat(1 << 20)));
  console.log(`figure: joined with a key after ${Math.round(performance.now() - began)} ms`);
  assert.equal((await client.callFunction("big", {}, { node: "ts.5" })).length, 1 << 20);
  assert.equal((await thrown(new Node({ gateway, token, dir }).run())).reason, "node_running");
  await second.end();
  chmodSync(join(dir, "key"), 0o644);
  assert.equal((await thrown(new Node({ gateway, token, dir }).run())).reason, "key_exposed");
  const other = mkdtempSync(join(tmpdir(), "junctor-node-"));
  assert.equal((await thrown(new Node({ gateway, token: process.env.INTEROP_TOKEN, dir: other, id: "ts.6" }).run())).code, "denied");
});

test("a constructor of WebSockets", async () => {
  let opened = 0;
  class Counted extends WebSocket {
    constructor(url) {
      super(url);
      opened++;
    }
  }
  const { end } = await start({ id: "ts.9", WebSocket: Counted });
  await end();
  assert.equal(opened, 1);
});

test("refusals", async () => {
  const e = await thrown(new Node({ gateway, token: "not-a-token", id: "ts.7", reconnectDelayMs: 10 }).run());
  assert.deepEqual([e.code, e.reason], ["unauthenticated", "refused"]);
  for (const options of [
    { gateway: "http://example.org" },
    { gateway: "https://a:b@x" },
    { gateway: "ws://127.0.0.1" },
    { id: "-" },
    { token: "" },
    { token: "a b\n" },
  ]) {
    assert.throws(
      () => new Node({ gateway, token, ...options }),
      (e) => e.code === "invalid_input",
      JSON.stringify(options),
    );
  }
  assert.throws(
    () => node.function("device.install_remote_skill", {}, () => {}),
    (e) => e.reason === "reserved_function",
  );
  assert.throws(
    () => node.function("a b", {}, () => {}),
    (e) => e.reason === "invalid_payload",
  );
});
