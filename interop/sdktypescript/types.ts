// The types of the SDK: what the compiler must accept, and what it must refuse.
import { action, Client, Endpoint, type FromSchema, JunctorError, Node } from "junctor";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <_ extends true>(): void => {};
type Flat<T> = { [K in keyof T]: T[K] };

const schema = {
  type: "object",
  properties: {
    name: { type: "string" },
    size: { type: "integer" },
    kind: { enum: ["a", "b"] },
    list: { type: "array", items: { type: "number" } },
    any: {},
  },
  required: ["name", "list"],
} as const;
same<Equal<Flat<FromSchema<typeof schema>>, { name: string; list: number[]; size?: number; kind?: "a" | "b"; any?: unknown }>>();

new Endpoint({
  id: "m",
  name: "m",
  actions: [
    action({
      name: "A",
      description: "a",
      parameters: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
      handle: ({ n }) => {
        same<Equal<typeof n, number>>();
        return { text: n.toFixed() };
      },
    }),
  ],
  // @ts-expect-error: routers of every generation have three slots only
  widgets: [{ id: "w", label: "w", slot: "wallet" }],
});

const node = new Node({ gateway: "https://gateway.example", token: "t" });
node.function("f", { parameters: { type: "object", properties: { to: { type: "integer" } } } }, ({ to }, { signal }) => {
  same<Equal<typeof to, number | undefined>>();
  return signal.aborted;
});
// @ts-expect-error: an effect is one of four
node.function("g", { effect: "external" }, () => 1);

const client = new Client({ url: "http://127.0.0.1:7777" });
same<Equal<ReturnType<typeof client.call<number>>, Promise<number>>>();
// @ts-expect-error: a stream cannot be repeated, so it does not wait for an approval
client.stream("x", {}, { waitForApproval: true });
// @ts-expect-error: the codes are a closed list
new JunctorError("wrong", "x");
