import { isObject, JunctorError } from "./errors.js";

/** A JSON Schema of which the types below are derived. Other keywords are passed on and not checked. */
export interface Schema {
  readonly type?: "object" | "array" | "string" | "number" | "integer" | "boolean" | "null";
  readonly description?: string;
  readonly properties?: { readonly [name: string]: Schema };
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly additionalProperties?: boolean | Schema;
  readonly [keyword: string]: unknown;
}

/** A JSON Schema of an object, such as the input of an action. */
export interface ObjectSchema extends Schema {
  readonly type: "object";
}

type Properties<S extends Schema> = S["properties"] extends { readonly [name: string]: Schema } ? S["properties"] : Record<never, Schema>;
type Required<S extends Schema> = S["required"] extends readonly string[] ? S["required"][number] : never;

/** The TypeScript type of the values that a schema allows. Write the schema with `as const`, or as an argument of a helper. */
export type FromSchema<S> = S extends { readonly const: infer C }
  ? C
  : S extends { readonly enum: readonly (infer E)[] }
    ? E
    : S extends { readonly type: "string" }
      ? string
      : S extends { readonly type: "number" | "integer" }
        ? number
        : S extends { readonly type: "boolean" }
          ? boolean
          : S extends { readonly type: "null" }
            ? null
            : S extends { readonly type: "array" }
              ? S extends { readonly items: infer I }
                ? FromSchema<I>[]
                : unknown[]
              : S extends ObjectSchema
                ? { [N in keyof Properties<S> & Required<S>]: FromSchema<Properties<S>[N]> } & {
                    [N in Exclude<keyof Properties<S>, Required<S>>]?: FromSchema<Properties<S>[N]>;
                  }
                : unknown;

/** Nesting beyond which values are not checked. */
const maxDepth = 64;

/**
 * Reports where a value does not fit a schema, or returns undefined. It checks type, properties, required, items, enum,
 * const and additionalProperties; other keywords are ignored. The text names places and never contains values.
 */
export function mismatch(schema: Schema, value: unknown, at = "the input", depth = 0): string | undefined {
  if (depth > maxDepth) return `${at} is nested too deeply`;
  if ("const" in schema && !equal(schema.const, value)) return `${at} is not the value that the schema requires`;
  if (schema.enum && !schema.enum.some((one) => equal(one, value))) return `${at} is not one of ${JSON.stringify(schema.enum)}`;
  switch (schema.type) {
    case undefined:
      break;
    case "integer":
      if (!Number.isInteger(value)) return `${at} must be an integer`;
      break;
    case "number":
      if (typeof value !== "number" || !Number.isFinite(value)) return `${at} must be a number`;
      break;
    case "null":
      if (value !== null) return `${at} must be null`;
      break;
    case "array":
      if (!Array.isArray(value)) return `${at} must be an array`;
      break;
    case "object":
      if (!isObject(value)) return `${at} must be an object`;
      break;
    default:
      if (typeof value !== schema.type) return `${at} must be a ${schema.type}`;
  }
  if (Array.isArray(value) && schema.items) {
    for (const [i, item] of value.entries()) {
      const wrong = mismatch(schema.items, item, `${at}[${i}]`, depth + 1);
      if (wrong) return wrong;
    }
  }
  if (!isObject(value)) return undefined;
  for (const name of schema.required ?? []) if (!Object.hasOwn(value, name)) return `${at} lacks ${JSON.stringify(name)}`;
  for (const [name, member] of Object.entries(value)) {
    const known = schema.properties && Object.hasOwn(schema.properties, name) ? schema.properties[name] : undefined;
    const sub = known ?? schema.additionalProperties;
    const place = `${at}.${name.slice(0, 100)}`;
    if (sub === false) return `${place} is not a member of the schema`;
    const wrong = isObject(sub) ? mismatch(sub, member, place, depth + 1) : undefined;
    if (wrong) return wrong;
  }
  return undefined;
}

/** Throws invalid_input unless a value fits a schema. */
export function checkInput(schema: Schema, value: unknown): void {
  const wrong = mismatch(schema, value);
  if (wrong) throw new JunctorError("invalid_input", wrong, { reason: "invalid_params" });
}

function equal(a: unknown, b: unknown): boolean {
  return a === b || (typeof a === "object" && typeof b === "object" && JSON.stringify(a) === JSON.stringify(b));
}
