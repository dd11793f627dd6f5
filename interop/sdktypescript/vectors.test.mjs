// The decoder of the SDK against the vectors of the original client, and its parser against malformed requests.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const { decodeParams, decodeResult, parseRequest, WireError } = await import(new URL("dist/router.js", process.env.SDK));
const data = new URL("../../protocol/router/testdata/", import.meta.url);
const plain = (value) => (value === undefined ? undefined : JSON.parse(JSON.stringify(value)));

test("the codec agrees with the original client", () => {
  const deviations = new Set(
    readFileSync(new URL("deviations.txt", data), "utf8")
      .split("\n")
      .filter((line) => line && !line.startsWith("#"))
      .map((line) => line.split(" ")[0]),
  );
  const vectors = readFileSync(new URL("vectors.ndjson", data), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  assert.equal(vectors.length, 726);
  for (const v of vectors) {
    const got = {};
    try {
      got.sent = plain(decodeParams(v.method, v.params));
      got.value = plain(decodeResult(v.method, v.result));
      got.ok = true;
    } catch (e) {
      Object.assign(got, { ok: false, value: undefined, code: e.code, at: e.at });
    }
    const { ok, value, sent, code, at } = v.expect;
    const want = ok ? { sent, value, ok } : { ...(sent !== undefined && { sent }), ok, value: undefined, code, at };
    if (deviations.has(v.id)) assert.equal(got.ok, false, `${v.id} is listed as a deviation: got ${JSON.stringify(got)}, want a refusal`);
    else assert.deepEqual(got, want, `${v.id}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
});

test("malformed requests are refused", () => {
  const parse = (text) => parseRequest(typeof text === "string" ? new TextEncoder().encode(text) : text, "/v1/capabilities/invoke");
  assert.deepEqual(parse('{"method":"m","params":{"a":[{"x":1,"x":2}]}}').params, { a: [{ x: 2 }] });
  for (const text of [
    '{"method":"m","method":"n"}',
    '{"method":"m","params":{"a":1,"\\u0061":2}}',
    '{"method":"m"} x',
    '{"method":7}',
    "[]",
    "",
    "null",
    '\ufeff{"method":"m"}',
    new Uint8Array([0x22, 0xff, 0x22]),
    "[".repeat(2000) + "]".repeat(2000),
    '{"method":"m","params":{"a',
  ]) {
    assert.throws(
      () => parse(text),
      (e) => e instanceof WireError && e.code === "CAPABILITY_DECODE_FAILED" && e.status === 400,
      `want a refusal of ${text}`,
    );
  }
});
