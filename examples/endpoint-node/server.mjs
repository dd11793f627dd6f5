// An endpoint of the capability-router protocol in plain Node, without a
// dependency: one module, unit-converter, that offers every surface of the
// protocol. Copy it and put your own work where convert() is.
//
//   node server.mjs [--port 0] [--token-file FILE]
//
// It prints one JSON line with its URL when it is ready. Then, from elsewhere:
//
//   junctor connect URL && junctor invoke unit-converter:action:CONVERT '{"value":3,"from":"mi","to":"km"}'

import { createHash, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

// ---- The work ---------------------------------------------------------------

const METRES = { mm: 0.001, cm: 0.01, m: 1, km: 1000, in: 0.0254, ft: 0.3048, yd: 0.9144, mi: 1609.344 };
const history = []; // the last conversions, newest first
const settings = { digits: 6 };

function convert({ value, from, to }) {
  if (typeof value !== "number" || !Number.isFinite(value)) throw decodeError("value must be a number");
  for (const unit of [from, to]) {
    if (!Object.hasOwn(METRES, unit)) throw decodeError(`unknown unit ${JSON.stringify(unit)}; known are ${Object.keys(METRES).join(", ")}`);
  }
  const result = Number(((value * METRES[from]) / METRES[to]).toPrecision(settings.digits));
  history.unshift({ value, from, to, result });
  history.length = Math.min(history.length, 50);
  return result;
}

const sentence = (c) => `${c.value} ${c.from} = ${c.result} ${c.to}`;
// Finds "3 mi in km" in a text.
function find(text) {
  const m = /(-?\d+(?:\.\d+)?)\s*([a-z]{1,2})\s+(?:in|to)\s+([a-z]{1,2})\b/i.exec(text ?? "");
  if (!m || !Object.hasOwn(METRES, m[2]) || !Object.hasOwn(METRES, m[3])) return null;
  return { value: Number(m[1]), from: m[2], to: m[3] };
}

// ---- The module -------------------------------------------------------------

const bundle = readFileSync(new URL("./view.js", import.meta.url));
const integrity = "sha256-" + createHash("sha256").update(bundle).digest("base64");
const BUNDLE_PATH = "/assets/unit-converter.js";

const manifest = {
  id: "unit-converter",
  name: "@examples/unit-converter",
  version: "1.0.0",
  description: "Converts lengths between metric and imperial units.",
  priority: 1,
  contexts: ["general"],
  config: { DIGITS: 6 },
  schema: { type: "object", properties: { DIGITS: { type: "number" } } },
  actions: [{
    name: "CONVERT",
    description: "Convert a length, for example 3 mi to km.",
    similes: ["CONVERT_UNITS"],
    parameters: {
      type: "object",
      properties: { value: { type: "number" }, from: { enum: Object.keys(METRES) }, to: { enum: Object.keys(METRES) }, text: { type: "string" } },
    },
  }],
  providers: [{ name: "RECENT_CONVERSIONS", description: "The last conversions.", dynamic: true }],
  evaluators: [{ name: "NOTICE_UNITS", description: "Notices questions for a conversion.", prompt: "Does the message ask to convert a length?", schema: { type: "object" }, hasPrepare: true, hasProcessor: true }],
  responseHandlerEvaluators: [{ name: "ADD_CONVERSION", description: "Adds the answer to a question it finds.", priority: 1 }],
  responseHandlerFieldEvaluators: [{ name: "conversion", description: "A conversion the model asks for.", schema: { type: "object" }, hasParse: true, hasHandle: true }],
  events: [{ eventName: "unit.used" }],
  models: [{ modelType: "TEXT_UNITS", priority: 1 }],
  services: [{ serviceType: "units", capabilityDescription: "Lengths.", methods: ["list", "convert"] }],
  componentTypes: [{ name: "conversion", schema: { type: "object", properties: { value: { type: "number" }, from: { type: "string" } }, required: ["value"] } }],
  widgets: [{ id: "converter", label: "Converter", slot: "chat-sidebar", componentExport: "Converter", developerOnly: false, viewKind: "release" }],
  app: { displayName: "Unit converter", category: "tools", capabilities: ["convert"], navTabs: [{ id: "units", label: "Units", path: "/units" }] },
  appBridge: { hooks: ["handleAppRoutes", "collectLaunchDiagnostics"] },
  lifecycle: { hooks: ["init", "applyConfig", "dispose"] },
  routes: [
    { method: "GET", path: "/units", name: "units", public: true, publicReason: "A list of unit names tells nothing.", description: "The known units." },
    { method: "GET", path: "/units/:unit", description: "One unit." },
  ],
  views: [{ id: "converter", label: "Converter", viewType: "gui", bundlePath: BUNDLE_PATH, contentType: "text/javascript", integrity, viewKind: "release" }],
};

// One function for each method; the keys are the wire's. What a function throws
// becomes the error envelope, what it returns the result.
const methods = {
  "plugin.modules.list": () => ({ modules: [manifest] }),
  "plugin.action.invoke": (p) => {
    named(p.action, manifest.actions, "name");
    const content = p.content ?? {};
    const ask = content.value === undefined ? find(content.text) : content;
    if (!ask) return { text: "Ask like this: 3 mi in km." };
    const result = convert(ask);
    return { text: sentence({ ...ask, result }), values: { result }, data: { ...ask, result } };
  },
  "plugin.provider.get": (p) => {
    named(p.provider, manifest.providers, "name");
    return { text: history.map(sentence).join("\n") || "nothing was converted yet", values: { count: history.length }, data: { history } };
  },
  "plugin.evaluator.shouldRun": (p) => (named(p.evaluator, manifest.evaluators, "name"), { shouldRun: find(p.message?.text) !== null }),
  "plugin.evaluator.prepare": (p) => (named(p.evaluator, manifest.evaluators, "name"), { prepared: { found: find(p.message?.text) } }),
  "plugin.evaluator.prompt": (p) => (named(p.evaluator, manifest.evaluators, "name"), { prompt: `${manifest.evaluators[0].prompt} Found: ${JSON.stringify(p.prepared?.found ?? null)}` }),
  "plugin.evaluator.process": (p) => {
    named(p.evaluator, manifest.evaluators, "name");
    const found = p.prepared?.found ?? find(p.message?.text);
    return { result: found ? { ...found, result: convert(found) } : { found: false } };
  },
  "plugin.responseHandlerEvaluator.shouldRun": (p) => (named(p.evaluator, manifest.responseHandlerEvaluators, "name"), { shouldRun: find(p.context?.message?.text) !== null }),
  "plugin.responseHandlerEvaluator.evaluate": (p) => {
    named(p.evaluator, manifest.responseHandlerEvaluators, "name");
    const found = find(p.context?.message?.text);
    return { patch: found ? { conversion: { ...found, result: convert(found) } } : {} };
  },
  "plugin.responseHandlerFieldEvaluator.shouldRun": (p) => (named(p.field, manifest.responseHandlerFieldEvaluators, "name"), { shouldRun: true }),
  "plugin.responseHandlerFieldEvaluator.parse": (p) => {
    named(p.field, manifest.responseHandlerFieldEvaluators, "name");
    const v = p.value;
    return typeof v?.value === "number" && v.from && v.to ? { value: { value: v.value, from: v.from, to: v.to } } : { softFail: true };
  },
  "plugin.responseHandlerFieldEvaluator.handle": (p) => {
    named(p.field, manifest.responseHandlerFieldEvaluators, "name");
    const v = p.value; // parsed is the model's whole answer where elizaOS calls
    if (typeof v?.value !== "number" || !v.from || !v.to) return { effect: { debug: ["nothing to convert"] } };
    return { effect: { patch: { result: convert(v) } } };
  },
  "plugin.lifecycle.call": (p) => {
    if (!manifest.lifecycle.hooks.includes(p.hook)) throw unavailable(`no hook ${p.hook}`);
    const digits = Number(p.config?.DIGITS ?? settings.digits);
    if (!Number.isInteger(digits) || digits < 1 || digits > 15) throw decodeError("DIGITS must be from 1 to 15");
    settings.digits = digits;
    if (p.hook === "dispose") history.length = 0;
    return { ok: true };
  },
  "plugin.event.handle": (p) => (named(p.eventName, manifest.events, "eventName"), { handled: true }),
  "plugin.model.invoke": (p) => {
    named(p.modelType, manifest.models, "modelType");
    const found = find(p.params?.prompt);
    return { result: { text: found ? sentence({ ...found, result: convert(found) }) : "no conversion found in the prompt" } };
  },
  "plugin.service.call": (p) => {
    named(p.serviceType, manifest.services, "serviceType");
    switch (p.method) {
      case "list": return { result: Object.keys(METRES) };
      case "convert": return { result: convert(p.args?.[0] ?? {}) };
    }
    throw unavailable(`the service units has no method ${p.method}`);
  },
  "plugin.route.call": (p) => {
    const unit = /^\/units\/([^/]+)$/.exec(p.path)?.[1];
    if (p.method !== "GET" || (p.path !== "/units" && !unit)) throw unavailable(`no route ${p.method} ${p.path}`);
    if (!unit) return { status: 200, headers: { "content-type": "application/json" }, body: { units: Object.keys(METRES) } };
    if (!Object.hasOwn(METRES, unit)) return { status: 404, body: { error: "unknown unit" } };
    return { status: 200, body: { unit, metres: METRES[unit] } };
  },
  "plugin.appBridge.call": (p) => {
    if (!manifest.appBridge.hooks.includes(p.hook)) throw unavailable(`no hook ${p.hook}`);
    if (p.hook === "collectLaunchDiagnostics") return { result: [{ level: "info", message: `${history.length} conversions so far` }] };
    // elizaOS passes the whole path, /api/apps/<slug>/units.
    if (p.context?.pathname?.replace(/^\/api\/apps\/[^/]+/, "") !== "/units") return { result: { handled: false } };
    return { result: { handled: true, status: 200, body: { units: Object.keys(METRES) } } };
  },
  "plugin.asset.get": (p) => {
    if (typeof p.path !== "string" || /[?#\\]|(^|\/)\.{1,2}(\/|$)|%/.test(p.path)) throw decodeError("that is not an asset path");
    if ("/" + p.path.replace(/^\/+/, "") !== BUNDLE_PATH) throw unavailable("no such asset");
    return { path: BUNDLE_PATH, contentType: "text/javascript", bodyBase64: bundle.toString("base64"), integrity };
  },
};

// ---- The protocol -----------------------------------------------------------

class WireError extends Error {
  constructor(code, message) { super(message); this.code = code; }
}
const decodeError = (message) => new WireError("CAPABILITY_DECODE_FAILED", message);
const unavailable = (message) => new WireError("CAPABILITY_UNAVAILABLE", message);

function named(name, list, key) {
  if (typeof name !== "string" || name.trim() === "") throw decodeError(`${key} must be a non-blank string`);
  if (!list.some((item) => item[key] === name)) throw unavailable(`the module has no ${name}`);
}

// An optional object that is null is a mistake, not an absent one.
const OBJECTS = ["content", "options", "state", "message", "context", "payload", "query", "headers", "config", "parsed"];

function invoke(method, params) {
  const run = Object.hasOwn(methods, method) ? methods[method] : undefined;
  if (!run) throw unavailable(`unknown method ${method}`);
  if (method !== "plugin.modules.list") {
    if (typeof params.moduleId !== "string" || !/^[A-Za-z0-9._-]+$/.test(params.moduleId)) throw decodeError("moduleId must name a module");
    if (params.moduleId !== manifest.id) throw unavailable(`no module ${params.moduleId}`);
    for (const key of OBJECTS) {
      if (key in params && (typeof params[key] !== "object" || params[key] === null || Array.isArray(params[key]))) throw decodeError(`${key} must be an object`);
    }
  }
  return run(params);
}

const MAX_BODY = 4 << 20;

function read(req) {
  return new Promise((resolve, reject) => {
    const chunks = [];
    let size = 0;
    req.on("data", (chunk) => {
      size += chunk.length;
      if (size > MAX_BODY) reject(Object.assign(decodeError(`the body is larger than ${MAX_BODY} bytes`), { status: 413 }));
      else chunks.push(chunk);
    });
    req.on("end", () => resolve(Buffer.concat(chunks).toString("utf8")));
    req.on("error", reject);
  });
}

function send(res, status, body, headers = {}) {
  const data = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
  // What is left of a refused body is not read: the connection ends with the answer.
  const end = status === 413 ? { connection: "close" } : {};
  res.writeHead(status, { "content-type": "application/json", "content-length": data.length, "x-content-type-options": "nosniff", ...end, ...headers });
  res.end(data);
}

function fail(res, status, err, method) {
  const code = err.code?.startsWith?.("CAPABILITY_") ? err.code : "CAPABILITY_REQUEST_FAILED";
  const message = code === "CAPABILITY_REQUEST_FAILED" ? "the handler failed" : err.message;
  send(res, status, { ok: false, error: { code, message, capability: "plugin", ...(method && { method }) } }, status === 401 ? { "www-authenticate": "Bearer" } : {});
}

function authorized(req, token) {
  if (!token) return true;
  const given = /^bearer (.+)$/i.exec(req.headers.authorization ?? "")?.[1] ?? "";
  const hash = (s) => createHash("sha256").update(s).digest();
  return timingSafeEqual(hash(given), hash(token));
}

export function endpoint({ token = "" } = {}) {
  return createServer(async (req, res) => {
    const path = req.url.split("?")[0];
    if (!authorized(req, token)) return fail(res, 401, unavailable("a bearer token is required"));
    try {
      if (req.method === "GET" && path === "/v1/capabilities") {
        return send(res, 200, { environment: "node", available: true, capabilities: { fs: false, pty: false, git: false, model: false, plugin: true } });
      }
      if (req.method === "GET" && path.startsWith("/v1/capabilities/assets/")) {
        const [id, ...rest] = path.slice("/v1/capabilities/assets/".length).split("/").map(decodeURIComponent);
        if (!id || rest.length === 0 || rest.some((s) => s === "" || s.includes("/"))) return fail(res, 400, decodeError("malformed asset URL"));
        try {
          const asset = invoke("plugin.asset.get", { moduleId: id, path: "/" + rest.join("/") });
          return send(res, 200, Buffer.from(asset.bodyBase64, "base64"), { "content-type": asset.contentType, "x-eliza-asset-integrity": asset.integrity });
        } catch (err) {
          return fail(res, err.code === "CAPABILITY_DECODE_FAILED" ? 400 : 404, err, "plugin.asset.get");
        }
      }
      if (req.method === "POST" && path === "/v1/capabilities/invoke") {
        let call;
        try {
          call = JSON.parse(await read(req));
        } catch (err) {
          return fail(res, err.status ?? 400, err.code ? err : decodeError("the body is not JSON: " + err.message));
        }
        if (typeof call !== "object" || call === null || Array.isArray(call) || typeof call.method !== "string") {
          return fail(res, 400, decodeError("the body must be {method, params}"));
        }
        const params = typeof call.params === "object" && call.params !== null && !Array.isArray(call.params) ? call.params : {};
        try {
          return send(res, 200, { ok: true, result: await invoke(call.method, params) });
        } catch (err) {
          return fail(res, 200, err, call.method); // a capability's failure: 200 and the envelope
        }
      }
      fail(res, 404, unavailable("nothing is at this path"));
    } catch (err) {
      fail(res, err instanceof URIError ? 400 : 500, err instanceof URIError ? decodeError("malformed URL") : err);
    }
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const option = (name, fallback) => (process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : fallback);
  const file = option("--token-file");
  const token = file ? readFileSync(file, "utf8").trim() : "";
  if (file && !token) throw new Error("the token file is empty: it would let everybody in");
  const server = endpoint({ token });
  server.listen(Number(option("--port", "0")), "127.0.0.1", () => {
    const url = `http://127.0.0.1:${server.address().port}`;
    console.log(JSON.stringify({ url, baseUrl: url, moduleIds: [manifest.id], bundlePath: BUNDLE_PATH }));
  });
  process.on("SIGTERM", () => server.close(() => process.exit(0)));
}
