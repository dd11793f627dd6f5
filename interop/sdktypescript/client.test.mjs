// The client of the SDK against a running server, and against servers that misbehave.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { Client, JunctorError } from "junctor";

const url = process.env.INTEROP_URL,
  agent = new Client({ url, token: process.env.INTEROP_TOKEN });
const admin = new Client({ url, token: process.env.INTEROP_ADMIN });

/** Returns what fn threw, which must be a JunctorError that does not contain a token. */
async function thrown(fn) {
  try {
    await fn();
  } catch (e) {
    assert.ok(e instanceof JunctorError, `got ${e}, want a JunctorError`);
    const seen = `${e.stack} ${JSON.stringify(e)} ${e.cause?.stack ?? e.cause}`;
    for (const token of [process.env.INTEROP_TOKEN, process.env.INTEROP_ADMIN, "secret-token"])
      assert.ok(!seen.includes(token), "the error contains a token");
    return e;
  }
  assert.fail("got no error, want one");
}

test("finds, describes and calls", async () => {
  const all = await agent.list();
  assert.ok(
    all.some((c) => c.name === "catalog.search"),
    `got ${all.map((c) => c.name)}, want catalog.search`,
  );
  const found = await agent.search("ping a device");
  assert.ok(
    found.some((f) => f.name === "DEVICE_PING"),
    `got ${JSON.stringify(found)}, want DEVICE_PING`,
  );
  assert.equal((await agent.describe("fs.list")).schema.type, "object");
  const { result, invocation } = await agent
    .invoke("fs.list", { path: "." }, { select: { root: "files" } })
    .catch(() => agent.invoke("catalog.search", { query: "x" }));
  assert.equal(typeof result, "object");
  assert.equal(invocation.state, "completed");
  const stream = admin.stream("device-tools:action:DEVICE_PING", { text: "hello" });
  let next = await stream.next();
  while (!next.done) next = await stream.next();
  assert.equal(next.value.invocation.state, "completed");
});

test("an idempotency key runs a call once", async () => {
  const call = () => admin.invoke("device-tools:action:DEVICE_PING", { text: "once" }, { idempotencyKey: "sdk-once" });
  const [first, second] = [await call(), await call()];
  assert.deepEqual([second.result, second.invocation.id, second.invocation.replayed], [first.result, first.invocation.id, true]);
});

test("a call waits for its approval and is repeated", async () => {
  const refused = await thrown(() => agent.call("device-tools:action:DEVICE_PING", { text: "approve me" }));
  assert.deepEqual([refused.code, refused.reason], ["approval_required", "confirmation_required"]);
  const waits = [];
  const call = agent.call(
    "device-tools:action:DEVICE_PING",
    { text: "approve me" },
    { waitForApproval: { intervalMs: 50, onWait: (e) => waits.push(e.details.approval) } },
  );
  const decided = admin.approvals.wait(refused.details.approval, { intervalMs: 20 });
  const pending = await admin.approvals.list({ state: "pending" });
  assert.deepEqual(
    pending.items.map((a) => a.id),
    [refused.details.approval],
  );
  assert.equal((await admin.approvals.decide(refused.details.approval, "once")).state, "approved");
  assert.equal((await decided).decision, "once");
  assert.equal(typeof (await call).text, "string");
  assert.ok(waits.length <= 1, `got ${waits.length} notices, want at most 1`);

  const second = await thrown(() => agent.call("device-tools:action:DEVICE_PING", { text: "deny me" }));
  await admin.approvals.decide(second.details.approval, "deny");
  const denied = await thrown(() => agent.call("device-tools:action:DEVICE_PING", { text: "deny me" }, { waitForApproval: true }));
  assert.deepEqual([denied.code, denied.reason], ["denied", "confirmation_rejected"]);
  const late = await thrown(() =>
    agent.call("device-tools:action:DEVICE_PING", { text: "never" }, { waitForApproval: { timeoutMs: 100, intervalMs: 30 } }),
  );
  assert.equal(late.code, "approval_required");
});

test("conversations, runs and tasks", async () => {
  const reply = await admin.chat.send("sdk", "/whoami");
  assert.match(reply.message.text, /admin/);
  const kinds = [];
  for await (const event of admin.chat.stream("sdk", "/whoami")) kinds.push(event.type);
  assert.equal(kinds.at(-1), "reply");
  assert.equal((await admin.chat.history("sdk")).length, 4);
  await admin.chat.forget("sdk");
  assert.deepEqual((await admin.tasks.list()).items, []);
  assert.equal((await thrown(() => admin.tasks.get("tsk_none"))).code, "not_found");
  for await (const event of admin.events()) {
    assert.equal(typeof event.type, "string");
    break;
  }
});

test("a run of the agent waits for an approval and ends", async () => {
  const reply = await agent.chat.send("pings", "PLAY-PING please");
  assert.equal(reply.type, "confirmation", `got ${JSON.stringify(reply)}, want a confirmation`);
  const waiting = await agent.runs.get(reply.run);
  assert.equal(waiting.state, "waiting");
  const ended = agent.runs.wait(reply.run, { intervalMs: 20 });
  const types = (async () => {
    const list = [];
    for await (const event of agent.runs.events(reply.run)) list.push(event.type);
    return list;
  })();
  await admin.approvals.decide(waiting.approval, "once");
  assert.equal((await ended).state, "completed");
  assert.equal((await types).at(-1), "end");
  assert.deepEqual(
    (await agent.runs.list({ session: "pings" })).items.map((r) => r.id),
    [reply.run],
  );
  assert.equal((await agent.chat.history("pings")).at(-1).text, "The device answers.");
  assert.equal((await thrown(() => agent.runs.wait(reply.run, { signal: AbortSignal.abort() }))).code, "cancelled");
});

test("errors", async () => {
  const unknown = await thrown(() => agent.call("no.such.thing"));
  assert.deepEqual([unknown.code, unknown.hint !== ""], ["unknown_capability", true]);
  assert.equal((await thrown(() => agent.approvals.list())).code, "denied");
  assert.equal((await thrown(() => new Client({ url, token: "secret-token" }).list())).code, "unauthenticated");
  assert.equal((await thrown(() => new Client({ url: "http://127.0.0.1:1", token: "secret-token" }).list())).code, "unavailable");
  assert.equal((await thrown(() => agent.list({ signal: AbortSignal.abort() }))).code, "cancelled");
  assert.equal((await thrown(() => agent.request("GET", ".example.org/"))).code, "invalid_input");
  for (const options of [{ url: "ftp://x" }, { url: "http://a:b@x" }, { url: "x" }, { url, token: "secret-token\nx: y" }]) {
    assert.equal((await thrown(() => new Client(options))).code, "invalid_input");
  }
});

test("a server that misbehaves", async (t) => {
  let elsewhere = 0;
  const paths = {
    "/redirect": (req, res) => res.writeHead(307, { location: "/elsewhere" }).end(),
    "/elsewhere": (req, res) => {
      elsewhere++;
      res.end("{}");
    },
    "/large": (req, res) => res.end(JSON.stringify("x".repeat(5000))),
    "/html": (req, res) => res.end("<html>"),
    "/silent": () => {},
    "/proxy": (req, res) => res.writeHead(502).end("bad gateway"),
    "/cut": (req, res) => {
      res.write('{"progress":{"progress":1}}\n');
      setTimeout(() => res.destroy(), 50);
    },
    "/long": (req, res) => res.end("y".repeat(5000)),
  };
  const server = createServer((req, res) => paths[req.url]?.(req, res)).listen(0, "127.0.0.1");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((resolve) => server.once("listening", resolve));
  const client = new Client({
    url: `http://127.0.0.1:${server.address().port}`,
    token: "secret-token",
    maxAnswerBytes: 1000,
    timeoutMs: 300,
  });
  const get = async (path) => (await thrown(() => client.request("GET", path))).code;
  assert.deepEqual([await get("/redirect"), elsewhere], ["failed", 0]);
  assert.equal(await get("/large"), "too_large");
  assert.equal(await get("/html"), "failed");
  assert.equal(await get("/silent"), "timeout");
  assert.equal(await get("/proxy"), "failed");
  const lines = (path) =>
    thrown(async () => {
      for await (const line of client.lines("GET", path)) assert.ok(line);
    });
  assert.equal((await lines("/cut")).code, "unavailable");
  assert.equal((await lines("/long")).code, "too_large");
});
