// An endpoint with one module, unit-converter, that offers every surface of the protocol.
//
//   node endpoint.ts [--token-file FILE] [--key-file FILE]
//
// It prints one JSON line with its URL. --key-file is an Ed25519 private key (PEM) with which the manifest is signed.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { action, Endpoint, JunctorError, type Module, signModule } from "junctor";

const metres = { mm: 0.001, cm: 0.01, m: 1, km: 1000, in: 0.0254, ft: 0.3048, yd: 0.9144, mi: 1609.344 };
type Unit = keyof typeof metres;
const units = Object.keys(metres) as Unit[];
const history: string[] = [];
let digits = 6;

function convert(value: number, from: Unit, to: Unit): number {
  const result = Number(((value * metres[from]) / metres[to]).toPrecision(digits));
  history.unshift(`${value} ${from} = ${result} ${to}`);
  history.length = Math.min(history.length, 50);
  return result;
}

// Finds "3 mi in km" in a text.
function find(text: unknown): { value: number; from: Unit; to: Unit } | undefined {
  const m = /(-?\d+(?:\.\d+)?)\s*([a-z]{1,2})\s+(?:in|to)\s+([a-z]{1,2})\b/i.exec(String(text ?? ""));
  const [from, to] = [units.find((u) => u === m?.[2]), units.find((u) => u === m?.[3])];
  return from && to ? { value: Number(m?.[1]), from, to } : undefined;
}

const textOf = (x: unknown): unknown => (x as { text?: unknown } | undefined)?.text;

const converter: Module = {
  id: "unit-converter",
  name: "@examples/unit-converter",
  version: "1.0.0",
  description: "Converts lengths between metric and imperial units.",
  priority: 1,
  contexts: ["general"],
  config: { DIGITS: 6 },
  schema: { type: "object", properties: { DIGITS: { type: "number" } } },
  actions: [
    action({
      name: "CONVERT",
      description: "Convert a length, for example 3 mi to km.",
      similes: ["CONVERT_UNITS"],
      parameters: {
        type: "object",
        properties: {
          value: { type: "number", description: "The length" },
          from: { enum: ["mm", "cm", "m", "km", "in", "ft", "yd", "mi"], description: "Its unit" },
          to: { enum: ["mm", "cm", "m", "km", "in", "ft", "yd", "mi"], description: "The unit to convert to" },
          text: { type: "string", description: "In words, in place of the others" },
        },
      },
      handle: (input) => {
        const { value, from, to } = input;
        const asked = value !== undefined && from !== undefined && to !== undefined ? { value, from, to } : find(input.text);
        if (!asked) return "Ask like this: 3 mi in km.";
        const result = convert(asked.value, asked.from, asked.to);
        return { text: history[0], values: { result }, data: { ...asked, result } };
      },
    }),
  ],
  providers: [
    {
      name: "RECENT_CONVERSIONS",
      description: "The last conversions.",
      dynamic: true,
      get: () => ({ text: history.join("\n") || "nothing yet", values: { count: history.length } }),
    },
  ],
  evaluators: [
    {
      name: "NOTICE_UNITS",
      description: "Notices questions for a conversion.",
      prompt: "Does the message ask to convert a length?",
      schema: { type: "object" },
      shouldRun: ({ message }) => find(message.text) !== undefined,
      prepare: ({ message }) => ({ found: find(message.text) ?? null }),
      buildPrompt: ({ prepared }) => `Does the message ask to convert a length? Found: ${JSON.stringify(prepared ?? null)}`,
      process: ({ message }) => {
        const found = find(message.text);
        return found ? { result: convert(found.value, found.from, found.to) } : { found: false };
      },
    },
  ],
  responseEvaluators: [
    {
      name: "ADD_CONVERSION",
      description: "Adds the answer to a question it finds.",
      priority: 1,
      evaluate: ({ message }) => {
        const found = find(textOf(message));
        return found && { conversion: convert(found.value, found.from, found.to) };
      },
    },
  ],
  fieldEvaluators: [
    {
      name: "conversion",
      description: "A conversion that the model asks for.",
      schema: { type: "object" },
      parse: ({ value }) => find(textOf(value)),
      handle: ({ value }) => {
        const found = find(textOf(value));
        return found ? { patch: { result: convert(found.value, found.from, found.to) } } : { debug: ["nothing to convert"] };
      },
    },
  ],
  events: [{ name: "unit.used", handle: () => true }],
  models: [
    {
      type: "TEXT_UNITS",
      priority: 1,
      invoke: (params) => {
        const found = find((params as { prompt?: unknown } | undefined)?.prompt);
        return { text: found ? String(convert(found.value, found.from, found.to)) : "no conversion found in the prompt" };
      },
    },
  ],
  services: [
    {
      type: "units",
      description: "Lengths.",
      methods: {
        list: () => units,
        convert: (args) => {
          const found = find(args[0]);
          if (!found) throw new JunctorError("invalid_input", "the first argument must be a text such as 3 mi in km");
          return convert(found.value, found.from, found.to);
        },
      },
    },
  ],
  componentTypes: [
    {
      name: "conversion",
      schema: { type: "object", properties: { value: { type: "number" }, from: { type: "string" } }, required: ["value"] },
    },
  ],
  widgets: [{ id: "converter", label: "Converter", slot: "chat-sidebar", componentExport: "Converter" }],
  app: {
    displayName: "Unit converter",
    category: "tools",
    capabilities: ["convert"],
    navTabs: [{ id: "units", label: "Units", path: "/units" }],
  },
  appBridge: {
    collectLaunchDiagnostics: () => [{ level: "info", message: `${history.length} conversions so far` }],
    handleAppRoutes: ({ pathname }) =>
      String(pathname).endsWith("/units") ? { handled: true, status: 200, body: { units } } : { handled: false },
  },
  lifecycle: {
    init: () => {},
    applyConfig: (config) => {
      const wanted = Number(config.DIGITS ?? digits);
      if (!Number.isInteger(wanted) || wanted < 1 || wanted > 15) throw new JunctorError("invalid_input", "DIGITS must be from 1 to 15");
      digits = wanted;
    },
    dispose: () => {
      history.length = 0;
    },
  },
  routes: [
    {
      method: "GET",
      path: "/units",
      name: "units",
      description: "The known units.",
      public: { reason: "A list of unit names is not secret." },
      handle: () => ({ body: { units } }),
    },
    {
      method: "GET",
      path: "/units/:unit",
      description: "One unit.",
      handle: ({ params }) => {
        const unit = units.find((u) => u === params.unit);
        return unit ? { body: { unit, metres: metres[unit] } } : { status: 404, body: { error: "unknown unit" } };
      },
    },
  ],
  views: [{ id: "converter", label: "Converter", type: "gui", bundle: "export function Converter() { return null; }\n" }],
};

const { values } = parseArgs({ options: { "token-file": { type: "string" }, "key-file": { type: "string" } } });
const token = values["token-file"] === undefined ? undefined : readFileSync(values["token-file"], "utf8").trim();
const signed =
  values["key-file"] === undefined
    ? converter
    : signModule(converter, { issuer: "examples", subject: "unit-converter", privateKey: readFileSync(values["key-file"], "utf8") });
const { url, close } = await new Endpoint(signed, { token }).listen();
console.log(JSON.stringify({ url, baseUrl: url, moduleIds: [converter.id] }));
process.once("SIGTERM", () => void close());
