// Endpoints of the SDK in one process: the fetch handler, limits, errors and signed manifests.
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { request } from "node:http";
import { test } from "node:test";
import { action, digests, Endpoint, JunctorError, signModule, verifyManifest } from "junctor";

const seen = [];
let waiting = 0;
const module = {
  id: "m",
  name: "@t/m",
  actions: [
    action({
      name: "ADD",
      description: "Add two numbers.",
      parameters: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] },
      handle: ({ a, b }) => ({ text: String(a + b) }),
    }),
    {
      name: "FAIL",
      description: "Fails.",
      handle: () => {
        throw new Error("a secret of this process");
      },
    },
    {
      name: "BUSY",
      description: "Is busy.",
      handle: () => {
        throw new JunctorError("overloaded", "come back", { reason: "queue_full", retryAfter: 500 });
      },
    },
    { name: "WRONG", description: "Answers wrongly.", handle: () => ({ text: 7 }) },
    {
      name: "WAIT",
      description: "Waits for its signal.",
      handle: (_, { signal }) =>
        new Promise(
          (resolve) =>
            waiting++ >= 0 &&
            signal.addEventListener("abort", () => {
              seen.push(signal.reason.code);
              resolve();
            }),
        ),
    },
  ],
  routes: [{ method: "GET", path: "/files/:name*", handle: ({ params, query }) => ({ body: { params, query } }) }],
  views: [{ id: "v", label: "V", bundle: "export {}" }],
};
const endpoint = new Endpoint(module, { token: "tok", maxBodyBytes: 10_000, onError: (e) => seen.push(e.message) });
const headers = { authorization: "bearer tok" };

async function invoke(method, params, on = endpoint) {
  const response = await on.fetch(
    new Request("http://x/v1/capabilities/invoke", { method: "POST", headers, body: JSON.stringify({ method, params }) }),
  );
  return { status: response.status, ...(await response.json()) };
}
const act = (name, content, options) => invoke("plugin.action.invoke", { moduleId: "m", action: name, content, options });

test("typed actions take content and parameters", async () => {
  assert.deepEqual((await act("ADD", { a: 1, b: 2 })).result, { text: "3" });
  assert.deepEqual((await act("ADD", { text: "add" }, { parameters: { a: 2, b: 3 } })).result, { text: "5" });
  const wrong = await act("ADD", { a: 1, b: "2" });
  assert.deepEqual(
    [wrong.status, wrong.error.code, wrong.error.message],
    [200, "CAPABILITY_DECODE_FAILED", "the input.b must be a number"],
  );
  const { result } = await invoke("plugin.modules.list", {});
  assert.deepEqual(result.modules[0].actions[0].parameters[0], { name: "a", description: "a", required: true, schema: { type: "number" } });
});

test("errors of handlers stay in the process unless they are meant for callers", async () => {
  const failed = await act("FAIL");
  assert.deepEqual(
    [failed.error.code, failed.error.message, seen.splice(0)],
    ["CAPABILITY_REQUEST_FAILED", "m:action:FAIL failed", ["a secret of this process"]],
  );
  const busy = await act("BUSY");
  assert.deepEqual(
    [busy.error.code, busy.error.details],
    ["CAPABILITY_UNAVAILABLE", { code: "overloaded", reason: "queue_full", retry_after_ms: 500 }],
  );
  assert.match((await act("WRONG")).error.message, /answered against the protocol/);
  seen.length = 0;
});

test("the fetch handler", async () => {
  const get = (path, more = {}) => endpoint.fetch(new Request("http://x" + path, { headers: { ...headers, ...more } }));
  assert.equal((await endpoint.fetch(new Request("http://x/v1/capabilities"))).status, 401);
  assert.equal((await (await get("/v1/capabilities?x=1")).json()).available, true);
  const asset = await get("/v1/capabilities/assets/m/assets/v.js");
  assert.deepEqual([asset.status, await asset.text(), asset.headers.get("content-type")], [200, "export {}", "text/javascript"]);
  assert.equal((await get("/v1/capabilities/assets/m/assets/v.js", { "if-none-match": asset.headers.get("etag") })).status, 304);
  assert.equal((await get("/v1/capabilities/assets/m/none.js")).status, 404);
  assert.equal((await get("/v1/capabilities/assets/m/%2e%2e%2fx.js")).status, 400);
  const large = await endpoint.fetch(new Request("http://x/v1/capabilities/invoke", { method: "POST", headers, body: "x".repeat(20_000) }));
  assert.deepEqual([large.status, (await large.json()).error.details.code], [413, "too_large"]);
  const route = await invoke("plugin.route.call", { moduleId: "m", method: "GET", path: "/files/a%20b/c", query: { q: ["1", "2"] } });
  assert.deepEqual(route.result.body, { params: { name: "a b/c" }, query: { q: ["1", "2"] } });
});

test("a caller that disconnects ends its call", async () => {
  const { url, close } = await endpoint.listen();
  const req = request(url + "/v1/capabilities/invoke", { method: "POST", headers });
  req.on("error", () => {});
  req.end(JSON.stringify({ method: "plugin.action.invoke", params: { moduleId: "m", action: "WAIT" } }));
  for (let i = 0; i < 500 && waiting === 0; i++) await new Promise((resolve) => setTimeout(resolve, 10));
  req.destroy();
  for (let i = 0; i < 200 && seen.length === 0; i++) await new Promise((resolve) => setTimeout(resolve, 10));
  await close();
  assert.deepEqual(seen.splice(0), ["cancelled"]);
});

test("declarations that routers refuse", () => {
  const invalid = (more, words, options) =>
    assert.throws(
      () => new Endpoint({ id: "m", name: "m", ...more }, options),
      (e) => e.code === "invalid_input" && words.test(e.message),
      `want ${words} for ${JSON.stringify(more)}`,
    );
  invalid({ id: "a b" }, /id/);
  invalid({ actions: [{ name: "A", description: "a" }] }, /actions\[0\]/);
  invalid(
    {
      events: [
        { name: "e", handle() {} },
        { name: "e", handle() {} },
      ],
    },
    /repeats "e"/,
  );
  invalid({ routes: [{ method: "POST", path: "/x", public: { reason: "r" }, handle() {} }] }, /write/);
  invalid({ views: [{ id: "v", label: "v" }] }, /views\[0\]/);
  invalid({ assets: [{ path: "../x", contentType: "text/plain", body: "" }] }, /assets\[0\]/);
  invalid({}, /token is empty/, { token: " " });
  assert.rejects(new Endpoint({ id: "m", name: "m" }).listen({ host: "0.0.0.0" }), /needs a token/);
});

test("signed manifests", async () => {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const other = generateKeyPairSync("ed25519");
  for (const form of ["original", "rfc8785"]) {
    const signed = new Endpoint(signModule(module, { issuer: "i", subject: "s", privateKey, form }), { token: "tok" });
    const manifest = (await invoke("plugin.modules.list", {}, signed)).result.modules[0];
    assert.equal(verifyManifest(manifest, publicKey), undefined);
    assert.match(verifyManifest(manifest, other.publicKey), /does not fit/);
    assert.match(verifyManifest({ ...manifest, description: "another" }, publicKey), /not the one that was signed/);
  }
  assert.throws(
    () => signModule(module, { issuer: "i", subject: "s", privateKey: "secret-key" }),
    (e) => !e.stack.includes("secret-key"),
  );
  // The digests of the Go implementation for names that collations order differently.
  const { manifest, original, rfc8785 } = JSON.parse(process.env.INTEROP_DIGESTS);
  assert.deepEqual(digests(manifest), { original, rfc8785 });
});

test("a web page cannot call an endpoint without a token", async () => {
  const open = new Endpoint(module);
  for (const [on, want] of [
    [open, 403],
    [endpoint, 200],
  ]) {
    for (const page of [{ origin: "https://page.example" }, { "sec-fetch-site": "cross-site" }]) {
      const get = (path) => on.fetch(new Request("http://x" + path, { headers: { ...(on === endpoint && headers), ...page } }));
      assert.equal((await get("/v1/capabilities")).status, want, JSON.stringify(page));
      assert.equal((await get("/v1/capabilities/assets/m/assets/v.js")).status, 200, JSON.stringify(page));
    }
  }
});
