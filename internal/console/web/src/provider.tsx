import { signal } from "@preact/signals";
import { visible } from "./ui";

/** The kinds of upstreams by name, such as openapi: their keys call them all mcp. */
export const upstreamKinds = signal<Record<string, string>>({});

const words: Record<string, string> = {
  mcp: "MCP server",
  openapi: "HTTP API",
  graphql: "GraphQL API",
  a2a: "A2A agent",
  endpoint: "endpoint",
  node: "device",
  core: "built in",
  builtin: "built in",
  extension: "extension",
  skill: "skill",
};

export const kindWord = (kind: string) => words[kind] ?? visible(kind.replaceAll("_", " "));

const plain = (segment: string) => {
  try {
    return visible(decodeURIComponent(segment));
  } catch {
    return visible(segment);
  }
};

/** The name of a provider and its kind in a word, by its key, such as files and "MCP server" for ext:mcp:files. */
export function providerOf(key: string): [name: string, kind: string] {
  const [, kind, instance] = key.split(/:(.*?):(.*)/s);
  if (!instance) return [visible(key), ""];
  if (kind === "core" || kind === "builtin") return ["junctor", words[kind]];
  if (instance === "default") return [plain(kind.replace(/^remote\./, "")), "module"];
  if (kind === "node" && instance === "local") return ["junctor's machine", ""];
  return [plain(instance), kindWord((kind === "mcp" && upstreamKinds.value[instance]) || kind)];
}

/** The owner of a module by the module's id, such as "files (MCP server)" for mcp.files. */
export function ownerOf(module: string): string {
  const [, kind, name] = /^(mcp|a2a|remote)\.(.+)$/.exec(module) ?? [];
  if (!kind) return visible(module);
  return kind === "remote" ? visible(name) : withNames(`ext:${kind}:${name}`);
}

/** A provider by its key, which is shown to those who point at it. */
export function Provider(p: { of?: string }) {
  if (!p.of) return null;
  const [name, kind] = providerOf(p.of);
  return (
    <span title={visible(p.of)}>
      {name}
      {kind && (
        <>
          {" "}
          <span class="who">{kind}</span>
        </>
      )}
    </span>
  );
}

/** A sentence of the server with the names of providers for their keys. */
export const withNames = (sentence: string) =>
  visible(sentence).replace(/\b[a-z][\w-]*:(?:mcp|a2a|endpoint|node|core|builtin|extension|skill):[\w~%-]+(?:\.[\w~%-]+)*/g, (key) => {
    const [name, kind] = providerOf(key);
    return kind ? `${name} (${kind})` : name;
  });
