import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { type Failure, call, get, post } from "../api";
import { go, here, href } from "../route";
import { Act, Tag, Title, useLoad, visible } from "../ui";
import { Field } from "./answers";

interface Choice {
  title: string;
  about: string;
  page?: () => ComponentChildren; // unless it is a form
  fields?: [name: string, label: string, kind?: "password" | "secret" | "check" | "optional"][];
  add?(v: Record<string, string>): Promise<string>;
}
const some = (v: string | undefined) => (v?.trim() ? v.trim() : undefined);
const counted = (r: any) => `${r?.counts?.tools ?? r?.tools ?? 0} tools`;
const upstream = (body: object) => post<any>("/api/v1/upstreams", body).then((r) => `Added, ${counted(r)}.`);
const synced = (r: any) => {
  const modules: string[] = [...(r?.sync?.registered ?? []), ...(r?.sync?.reloaded ?? [])];
  return `Connected as ${r?.endpoint?.id}${modules.length ? `: ${modules.join(", ")}` : ""}.`;
};

const kinds: Record<string, Choice> = {
  program: {
    title: "MCP server that runs here",
    about: "A program on the machine that junctor runs on: paste the lines that its documentation has for a client.",
    page: () => <Import />,
  },
  mcp: {
    title: "MCP server at an address",
    about: "One that runs somewhere else, or is offered as a service.",
    fields: [
      ["name", "Name"],
      ["url", "URL"],
      ["secret", "Secret with its bearer token", "secret"],
      ["private", "It is on the machine that junctor runs on, or in a private network", "check"],
    ],
    add: (v) => upstream({ name: v.name, url: v.url, bearer_secret: some(v.secret), private_network: v.private === "on" }),
  },
  registry: { title: "MCP server from the registry", about: "Search the public list of MCP servers.", page: () => <Registry /> },
  openapi: {
    title: "HTTP API with an OpenAPI document",
    about: "Each operation of the document becomes a tool.",
    fields: [
      ["name", "Name"],
      ["document", "URL of the document"],
      ["url", "URL of the API, if it is another server", "optional"],
      ["secret", "Secret for the API", "secret"],
      ["private", "It is on the machine that junctor runs on, or in a private network", "check"],
    ],
    add: (v) => upstream({ name: v.name, kind: "openapi", document: v.document, url: some(v.url), api_secret: some(v.secret), private_network: v.private === "on" }),
  },
  graphql: {
    title: "GraphQL API",
    about: "Each query and mutation becomes a tool.",
    fields: [
      ["name", "Name"],
      ["url", "URL of the API"],
      ["secret", "Secret for the API", "secret"],
      ["private", "It is on the machine that junctor runs on, or in a private network", "check"],
    ],
    add: (v) => upstream({ name: v.name, kind: "graphql", url: v.url, api_secret: some(v.secret), private_network: v.private === "on" }),
  },
  a2a: {
    title: "A2A agent",
    about: "Another agent, by the address of its card: each of its skills becomes a tool.",
    fields: [
      ["name", "Name"],
      ["url", "URL of the card"],
      ["secret", "Secret with its bearer token", "secret"],
      ["private", "It is on the machine that junctor runs on, or in a private network", "check"],
    ],
    add: (v) => upstream({ name: v.name, kind: "a2a", url: v.url, bearer_secret: some(v.secret), private_network: v.private === "on" }),
  },
  endpoint: {
    title: "Endpoint",
    about: "A program with modules of its own: an elizaOS agent, or one made with an SDK.",
    fields: [
      ["id", "Name", "optional"],
      ["url", "URL"],
      ["token", "Its token", "password"],
      ["provider", "What it is, such as home-machine", "optional"],
    ],
    add: (v) =>
      post("/api/capability-router/connect", {
        endpoint: { id: some(v.id), baseUrl: v.url, token: some(v.token) },
        provider: some(v.provider),
      }).then(synced),
  },
  cloud: {
    title: "Endpoint in a cloud",
    about: "The cloud creates an agent, and junctor connects it.",
    fields: [
      ["name", "Name of the agent"],
      ["token", "Your token at the cloud", "password"],
      ["base", "Address of the cloud", "optional"],
    ],
    add: (v) => post("/api/capability-router/connect", { cloud: { name: v.name, authToken: v.token, cloudApiBase: some(v.base) } }).then(synced),
  },
  device: {
    title: "Device",
    about: "A computer or phone that offers functions: you get a token that lets devices in for an hour, and the command to run there.",
    fields: [["name", "Name"]],
    add: (v) =>
      post<any>("/api/v1/tokens", { role: "node", name: v.name, expires: "1h" }).then(
        (t) => `Shown once. On the device, write this token to a file: ${t.token} — then run: junctor node join ${location.origin} --node-token-file FILE`,
      ),
  },  extension: { title: "Extension", about: "A package of commands and tools, from a file or an address. You read what it asks for before it runs.", page: () => <Install /> },
};

const groups: [name: string, kinds: string[]][] = [
  ["MCP servers", ["program", "mcp", "registry"]],
  ["APIs and agents", ["openapi", "graphql", "a2a"]],
  ["Endpoints, devices and extensions", ["endpoint", "cloud", "device", "extension"]],
];

/** /add: what can be added, each with a page of its own: /add/{kind}. */
export function Add() {
  const name = here.value.split("?")[0].split("/")[2];
  const kind = Object.hasOwn(kinds, name) ? kinds[name] : null;
  if (!kind) return <Choose />;
  return (
    <>
      <Title up={["Add a provider", "/add"]} sub={kind.about}>
        {kind.title}
      </Title>
      {kind.page ? kind.page() : <Form key={name} of={kind} />}
    </>
  );
}

function Choose() {
  const described = useLoad<Record<string, any[]>>("/api/v1/catalog/static", /^(catalog|extension)\./, 60000);
  const more = ["install", "onboarding", "channels", "cli"].flatMap((of) => (described.data?.[of] ?? []).map((row: any) => ({ of, row })));
  return (
    <>
      <Title up={["Providers", "/providers"]} sub="What is to be there for agents?">
        Add a provider
      </Title>
      {groups.map(([title, names]) => (
        <>
          <h2>{title}</h2>
          <ul class="list" aria-label={title}>
            {names.map((name) => (
              <li key={name}>
                <a class="row c-add" href={href(`/add/${name}`)}>
                  <b>{kinds[name].title}</b>
                  <span class="who">{kinds[name].about}</span>
                </a>
              </li>
            ))}
          </ul>
        </>
      ))}
      {more.length > 0 && (
        <>
          <h2>
            Described by packages of this server <span class="n">they are not run to list them</span>
          </h2>
          <ul class="list" aria-label="Described by packages">
            {more.map(({ of, row }) => (
              <li class="row c-flat" key={`${of} ${row.id ?? row.name}`}>
                <Tag>{of}</Tag>
                <span>
                  <b>{visible(row.label ?? row.title ?? row.name ?? row.id)}</b> <span class="who">{visible(row.blurb ?? row.description ?? row.summary ?? "")}</span>
                </span>
                <span class="m opt clip">{visible(row.docsPath ?? row.command ?? "")}</span>
                {of === "channels" ? <a href={href("/channels")}>Add</a> : <span />}
              </li>
            ))}
          </ul>
        </>
      )}
      <p class="sub">
        Elsewhere: <a href={href("/connect")}>connect an agent</a> that uses what is here, or <a href={href("/channels")}>a chat service</a> in which people talk to it.
      </p>
    </>
  );
}

/** Installs a package. One with steps that run something is shown first, and nothing of it runs before a person agrees. */
function Install() {
  const file = useSignal<File | null>(null);
  const url = useSignal("");
  const asked = useSignal<{ hash: string; text: string } | null>(null);
  const install = async () => {
    const agreed = asked.value?.hash ?? "";
    try {
      const r = file.value
        ? await call("POST", `/api/v1/extensions/install?agreed=${encodeURIComponent(agreed)}`, file.value)
        : await post("/api/v1/extensions/install-url", { url: url.value.trim(), agreed });
      go(r.extension_id ? `/providers/extensions/${encodeURIComponent(r.extension_id)}` : "/providers");
    } catch (e) {
      const { details } = e as Failure;
      if (!details?.tree_hash || agreed) throw e;
      asked.value = { hash: String(details.tree_hash), text: String(details.text) };
    }
  };
  return (
    <form onSubmit={(e) => e.preventDefault()}>
      <label class="field">
        Package, a zip file
        <input type="file" accept=".zip" onChange={(e) => ((file.value = e.currentTarget.files?.[0] ?? null), (asked.value = null))} />
      </label>
      <label class="field">
        Or its https address
        <input type="url" value={url.value} disabled={file.value !== null} onInput={(e) => ((url.value = e.currentTarget.value), (asked.value = null))} />
      </label>
      {asked.value && (
        <>
          <p class="note">Its installation runs or downloads something. Nothing was done yet.</p>
          <div class="code">
            <pre tabIndex={0}>{visible(asked.value.text)}</pre>
          </div>
        </>
      )}
      <p class="btns">
        <Act kind="p" off={!file.value && !url.value.trim()} do={install}>
          {asked.value ? "Agree and install" : "Install"}
        </Act>
      </p>
      <p class="sub">
        A package of more than 1 MiB, or a folder, is installed at the terminal: <span class="m">junctor extensions install FILE</span>
      </p>
    </form>
  );
}

/** The form of one kind. */
function Form(p: { of: Choice }) {
  const values = useSignal<Record<string, string>>({});
  const done = useSignal("");
  const secrets = useLoad<{ secrets: { name: string }[] }>("/api/v1/secrets", /^secret\./);
  const fields = p.of.fields ?? [];
  const set = (name: string, v: string) => (values.value = { ...values.value, [name]: v });
  return (
    <form aria-label={p.of.title} onSubmit={(e) => e.preventDefault()}>
      {fields.map(([name, label, how]) =>
        how === "check" ? (
          <label class="check" key={name}>
            <input type="checkbox" checked={values.value[name] === "on"} onChange={(e) => set(name, e.currentTarget.checked ? "on" : "")} /> {label}
          </label>
        ) : (
          <label class="field" key={name}>
            {label}
            {how === "optional" && " (optional)"}
            {how === "secret" ? (
              <select value={values.value[name] ?? ""} onChange={(e) => set(name, e.currentTarget.value)}>
                <option value="">none</option>
                {(secrets.data?.secrets ?? []).map((s) => (
                  <option key={s.name}>{s.name}</option>
                ))}
              </select>
            ) : (
              <Field secret={how === "password"} value={values.value[name] ?? ""} set={(v) => set(name, v)} />
            )}
            {how === "secret" && (
              <span class="who">
                Another one is stored at the terminal: <span class="m">junctor secrets set NAME</span>
              </span>
            )}
          </label>
        ),
      )}
      <p class="btns">
        <Act
          kind="p"
          off={fields.some(([name, , how]) => !how && !values.value[name]?.trim())}
          do={async () => {
            done.value = "";
            done.value = await p.of.add!(values.value);
            values.value = {};
          }}
        >
          Add it
        </Act>
      </p>
      {done.value && (
        <p class="note" role="status">
          {visible(done.value)} <a href={href("/providers")}>See the providers</a>
        </p>
      )}
    </form>
  );
}

interface Imported {
  moved: Record<string, string>;
  left?: Record<string, string>;
  folders?: Record<string, { read_only?: string[]; read_write?: string[] }>;
  secrets?: string[];
}

const foldersOf = (plan: Imported, server: string) => [...(plan.folders?.[server]?.read_only ?? []), ...(plan.folders?.[server]?.read_write ?? [])];

/** Adds the MCP servers of a client's file. The server reads the file, first without adding anything. */
function Import() {
  const text = useSignal("");
  const plan = useSignal<Imported | null>(null);
  const chosen = useSignal<string[]>([]);
  const added = useSignal<Imported | null>(null);
  const body = (more: object) => ({ file: "pasted.json", text: text.value, keep_unreached: true, ...more });
  const look = async () => {
    added.value = null;
    plan.value = await post<Imported>("/api/v1/imports", body({ move: ["*"], dry_run: true }));
    chosen.value = Object.keys(plan.value.moved ?? {});
  };
  const add = async () => {
    added.value = await post<Imported>("/api/v1/imports", body({ move: chosen.value }));
    plan.value = null;
    text.value = "";
  };
  return (
    <>
      <label class="field">
        Paste the MCP servers (mcp.json)
        <textarea
          value={text.value}
          spellcheck={false}
          placeholder={'{"mcpServers": {"files": {"command": "npx", "args": ["-y", "…"]}}}'}
          onInput={(e) => ((text.value = e.currentTarget.value), (plan.value = null))}
        />
      </label>
      {!plan.value && (
        <p class="btns">
          <Act kind="p" off={!text.value.trim()} do={look}>
            Show what would be added
          </Act>
        </p>
      )}
      {plan.value && (
        <>
          <ul class="list">
            {Object.entries(plan.value.moved ?? {}).map(([from, to]) => (
              <li class="row c-four" key={from}>
                <label>
                  <input
                    type="checkbox"
                    checked={chosen.value.includes(from)}
                    onChange={() => (chosen.value = chosen.value.includes(from) ? chosen.value.filter((n) => n !== from) : [...chosen.value, from])}
                  />{" "}
                  <b>{visible(to)}</b>
                </label>
                <span class="m clip">{visible(foldersOf(plan.value!, from).join(" "))}</span>
                <span class="who opt">runs confined, and sees {foldersOf(plan.value!, from).length > 0 ? "these folders" : "no folder of yours"}</span>
              </li>
            ))}
            {Object.entries(plan.value.left ?? {}).map(([name, why]) => (
              <li class="row c-four" key={name}>
                <span>{visible(name)}</span>
                <span class="who">{visible(why)}</span>
                <Tag is="bad">stays</Tag>
              </li>
            ))}
          </ul>
          {(plan.value.secrets ?? []).length > 0 && (
            <p class="sub">
              Credentials become named secrets, which are never shown: <span class="m">{visible((plan.value.secrets ?? []).join(", "))}</span>
            </p>
          )}
          {chosen.value.length > 0 && (
            <p class="btns">
              <Act kind="p" do={add}>
                Add {chosen.value.length === 1 ? "it" : `the ${chosen.value.length} servers`}
              </Act>
            </p>
          )}
        </>
      )}
      {added.value && (
        <p class="note" role="status">
          Added: {visible(Object.values(added.value.moved ?? {}).join(", ") || "nothing")}. <a href={href("/providers")}>See their tools</a>
        </p>
      )}
    </>
  );
}

interface Listed {
  name: string;
  title?: string;
  description?: string;
  version: string;
  status: string;
  packages: string[];
}

interface Input {
  key: string;
  description?: string;
  default?: string;
  choices?: string[];
  required?: boolean;
  secret?: boolean;
  given?: boolean;
}

interface Plan {
  name: string;
  version: string;
  package: string;
  status: string;
  inputs: Input[];
  record?: {
    name: string;
    command?: string[];
    url?: string;
    env?: Record<string, string>;
    env_secrets?: Record<string, string>;
    headers?: Record<string, string>;
    header_secrets?: Record<string, string>;
    bearer_secret?: string;
  };
}

/** All that a record starts or sends: an argument with a space, or a variable, could turn it into something else. */
function whole(r: NonNullable<Plan["record"]>): string {
  const word = (w: string) => (/^[\w@%+=:,./-]+$/.test(w) ? w : JSON.stringify(w));
  const named = (of: Record<string, string> | undefined, is: string) => Object.entries(of ?? {}).map(([name, value]) => `${name}${is}${word(value)}`);
  return [
    r.url ?? r.command?.map(word).join(" ") ?? "",
    ...named(r.env, "="),
    ...named(r.env_secrets, "=the secret "),
    ...named(r.headers, ": "),
    ...named(r.header_secrets, ": the secret "),
    ...(r.bearer_secret ? [`Authorization: Bearer, with the secret ${word(r.bearer_secret)}`] : []),
  ].join("\n");
}

/** Searches the MCP registry and adds one of its entries, with the values that it asks for. */
function Registry() {
  const words = useSignal("");
  const found = useSignal<Listed[] | null>(null);
  const plan = useSignal<Plan | null>(null);
  const values = useSignal<Record<string, string>>({});
  const done = useSignal("");
  const secrets = useLoad<{ secrets: { name: string }[] }>("/api/v1/secrets", /^secret\./);
  const search = async () => {
    plan.value = null;
    done.value = "";
    found.value = (await get<{ servers: Listed[] }>(`/api/v1/registry?search=${encodeURIComponent(words.value)}`)).servers ?? [];
  };
  const look = async (name: string, version: string) => {
    const inputs: Record<string, string[]> = {};
    const named: Record<string, string> = {};
    for (const i of plan.value?.name === name ? plan.value.inputs : []) {
      const v = values.value[i.key]?.trim();
      if (v) i.secret ? (named[i.key] = v) : (inputs[i.key] = [v]);
    }
    plan.value = await post<Plan>("/api/v1/registry/plan", { name, version, inputs, secrets: named });
  };
  const add = async () => {
    const r = await post<any>("/api/v1/upstreams", plan.value!.record);
    done.value = `Added ${plan.value!.record!.name}, ${counted(r)}; they wait for your review.`;
    plan.value = null;
  };
  const p = plan.value;
  return (
    <>
      <form
        class="bar"
        onSubmit={(e) => {
          e.preventDefault();
          e.currentTarget.querySelector("button")?.click();
        }}
      >
        <input type="search" aria-label="Words" placeholder="words of its name" value={words.value} onInput={(e) => (words.value = e.currentTarget.value)} />
        <Act kind="p" do={search}>
          Search
        </Act>
      </form>
      {found.value && found.value.length === 0 && <p class="sub">The registry has no server with these words that can be added here.</p>}
      {found.value && found.value.length > 0 && (
        <ul class="list" aria-label="Servers of the registry">
          {found.value.map((s) => (
            <li class="row c-four" key={s.name}>
              <b class="clip">{visible(s.title ?? s.name)}</b>
              <span class="clip">{visible(s.description)}</span>
              <span class="who opt">
                {visible(s.name)} {visible(s.version)} {s.status !== "active" && <Tag is="bad">{visible(s.status)}</Tag>}
              </span>
              <span class="btns">
                <Act
                  do={() => {
                    values.value = {};
                    plan.value = null;
                    return look(s.name, s.version);
                  }}
                >
                  Add…
                </Act>
              </span>
            </li>
          ))}
        </ul>
      )}
      {p && (
        <div class="note">
          <p>
            <b>{visible(p.name)}</b> {visible(p.version)} {p.status !== "active" && <Tag is="bad">{visible(p.status)}</Tag>}
          </p>
          {p.inputs.map((i) => (
            <label class="field" key={i.key}>
              {visible(i.key)} {i.required ? "" : "(optional)"} <span class="who">{visible(i.description)}</span>
              {i.secret || i.choices ? (
                <select value={values.value[i.key] ?? ""} onChange={(e) => (values.value = { ...values.value, [i.key]: e.currentTarget.value })}>
                  <option value="">{i.secret ? "choose one; “junctor secrets set NAME” stores it" : visible(i.default)}</option>
                  {(i.secret ? (secrets.data?.secrets ?? []).map((s) => s.name) : (i.choices ?? [])).map((v) => (
                    <option key={v} value={v}>
                      {visible(v)}
                    </option>
                  ))}
                </select>
              ) : (
                <input placeholder={visible(i.default)} value={values.value[i.key] ?? ""} onInput={(e) => (values.value = { ...values.value, [i.key]: e.currentTarget.value })} />
              )}
            </label>
          ))}
          {p.record && (
            <div class="code">
              <pre tabIndex={0}>{visible(whole(p.record))}</pre>
            </div>
          )}
          <p class="btns">
            {p.inputs.length > 0 && <Act do={() => look(p.name, p.version)}>Use these values</Act>}
            {p.record && (
              <Act kind="p" do={add}>
                Add it
              </Act>
            )}
          </p>
        </div>
      )}
      {done.value && (
        <p class="note" role="status">
          {visible(done.value)} <a href={href("/providers")}>Review</a>
        </p>
      )}
    </>
  );
}
