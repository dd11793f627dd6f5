// A node with three functions.
//
//   node node.ts GATEWAY --node-token-file FILE [--id ID] [--dir DIR] [--label LABEL]
//
// It prints one JSON line when it has joined. Then, from elsewhere: junctor call ID count '{"to":5}' --stream
import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Node } from "junctor";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    "node-token-file": { type: "string" },
    id: { type: "string" },
    dir: { type: "string" },
    label: { type: "string", multiple: true },
    concurrent: { type: "string" },
  },
});
const node = new Node({
  gateway: positionals[0],
  token: values["node-token-file"] && readFileSync(values["node-token-file"], "utf8").trim(),
  id: values.id,
  dir: values.dir,
  labels: values.label,
  maxConcurrent: Number(values.concurrent ?? 10),
  onState: (state, reason) => {
    if (state === "connected") console.log(JSON.stringify({ node_id: node.id, epoch: node.epoch, pid: process.pid }));
    if (reason) console.error("node: " + reason.message);
  },
});

node.function(
  "greet",
  { description: "Greet a person.", effect: "read", parameters: { type: "object", properties: { name: { type: "string" } } } },
  ({ name = "you" }) => `hello, ${name}`,
);

node.function(
  "wait",
  { description: "Wait so many seconds.", effect: "read", parameters: { type: "object", properties: { seconds: { type: "number" } } } },
  async ({ seconds = 1 }, { signal }) => {
    await wait(seconds * 1000, undefined, { signal });
    return "done";
  },
);

node.function(
  "count",
  { description: "Count up, one by one.", effect: "read", parameters: { type: "object", properties: { to: { type: "integer" } } } },
  async function* ({ to = 10 }) {
    for (let n = 1; n <= to; n++) yield n;
  },
);

process.once("SIGTERM", () => node.drain());
process.once("SIGINT", () => node.drain());
await node.run();
