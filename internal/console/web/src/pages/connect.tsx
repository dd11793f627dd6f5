import { useSignal } from "@preact/signals";
import { Failure, get, post, remove } from "../api";
import { href } from "../route";
import { Field } from "./answers";
import { Act, Ago, Show, Tag, Title, Trouble, useLoad, visible } from "../ui";

interface Client {
  name: string;
  title: string;
  found: boolean;
  file: string;
  connected: boolean;
  set_up: boolean;
  used?: string;
  servers: { name: string }[];
}

export function Connect() {
  const clients = useLoad<{ clients: Client[] }>("/api/v1/clients", /^client\./, 5000);
  const preview = useSignal<{ name: string; diff: string } | null>(null);
  const failed = useSignal<Failure | null>(null);
  const undone = useSignal("");
  const undo = async (c: Client) => {
    const r = await remove<{ removed?: string[] }>(`/api/v1/clients/${c.name}`);
    undone.value = `${c.title} is as it was before.` + (r?.removed?.length ? ` Removed from junctor: ${r.removed.join(", ")}.` : "");
    clients.reload();
  };
  const show = async (c: Client) => {
    failed.value = null;
    undone.value = "";
    try {
      const body = await post<any>(`/api/v1/clients/${c.name}`, { dry_run: true });
      preview.value = { name: c.name, diff: body.difference };
    } catch (e) {
      failed.value = e as Failure;
    }
  };
  const connect = async (c: Client) => {
    await post(`/api/v1/clients/${c.name}`, {});
    preview.value = null;
    clients.reload();
  };
  return (
    <>
      <Title sub="Agents that use junctor, and what junctor reaches for them.">Connect</Title>
      <h2>Agents on this machine</h2>
      {failed.value && <Trouble error={failed.value} />}
      {undone.value && (
        <p class="note" role="status">
          {visible(undone.value)}
        </p>
      )}
      <Show of={clients}>
        {({ clients: list }) => (
          <ul class="list">
            {[...list].sort((a, b) => Number(b.found) - Number(a.found)).map((c) => (
              <li key={c.name}>
                <div class="row c-four">
                  <span>
                    <b>{c.title}</b>{" "}
                    {c.set_up && <span class="who">{c.used ? <>last request <Ago at={c.used} /></> : "waiting for its first request"}</span>}
                  </span>
                  <span class="m opt clip">{c.file}</span>
                  <Tag is={c.connected ? "ok" : ""}>{c.connected ? "connected" : c.found ? "found" : "not found"}</Tag>
                  <span class="btns">
                    {c.found && !c.connected && <Act do={() => show(c)}>Connect…</Act>}
                    {c.set_up && (
                      <Act kind="d" do={() => undo(c)}>
                        Undo
                      </Act>
                    )}
                  </span>
                </div>
                {preview.value?.name === c.name && (
                  <div class="note">
                    <p>This changes {c.file}. It can be undone to the byte.</p>
                    <div class="code">
                      <pre tabIndex={0}>{visible(preview.value.diff)}</pre>
                    </div>
                    <p class="btns">
                      <Act kind="p" do={() => connect(c)}>
                        Write it
                      </Act>
                      <button type="button" class="b" onClick={() => (preview.value = null)}>
                        Leave it
                      </button>
                    </p>
                  </div>
                )}
              </li>
            ))}
          </ul>
        )}
      </Show>
      <p class="sub">To move the MCP servers that a client has behind junctor as well, run: <span class="m">junctor setup</span></p>
      <h2>What junctor reaches</h2>
      <Import />
      <Add />
      <Registry />
      <p>
        <a href={href("/providers")}>Everything that is connected</a>
      </p>
    </>
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
        Paste the MCP servers of a client (mcp.json)
        <textarea
          value={text.value}
          spellcheck={false}
          placeholder={'{"mcpServers": {"files": {"command": "npx", "args": ["-y", "…"]}}}'}
          onInput={(e) => ((text.value = e.currentTarget.value), (plan.value = null))}
        />
      </label>
      {text.value.trim() && !plan.value && (
        <p class="btns">
          <Act do={look}>Show what would be added</Act>
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

interface Kind {
  title: string;
  about: string;
  fields: [name: string, label: string, kind?: "password" | "secret" | "check" | "optional"][];
  add(v: Record<string, string>): Promise<string>;
}

const some = (v: string | undefined) => (v?.trim() ? v.trim() : undefined);
const counted = (r: any) => `${r?.counts?.tools ?? r?.tools ?? 0} tools`;
const upstream = (body: object) => post<any>("/api/v1/upstreams", body).then((r) => `Added, ${counted(r)}.`);
const synced = (r: any) => {
  const modules: string[] = [...(r?.sync?.registered ?? []), ...(r?.sync?.reloaded ?? [])];
  return `Connected as ${r?.endpoint?.id}${modules.length ? `: ${modules.join(", ")}` : ""}.`;
};

const kinds: Record<string, Kind> = {
  mcp: {
    title: "MCP server by its address",
    about: "Its tools are called by their names with the name of the server in front.",
    fields: [
      ["name", "Name"],
      ["url", "URL"],
      ["secret", "Secret with its bearer token", "secret"],
      ["private", "It is on this machine or in a private network", "check"],
    ],
    add: (v) => upstream({ name: v.name, url: v.url, bearer_secret: some(v.secret), private_network: v.private === "on" }),
  },
  openapi: {
    title: "HTTP API by its OpenAPI document",
    about: "Each operation becomes a tool.",
    fields: [
      ["name", "Name"],
      ["document", "URL of the document"],
      ["url", "URL of the API, if it is another server", "optional"],
      ["secret", "Secret for the API", "secret"],
      ["private", "It is on this machine or in a private network", "check"],
    ],
    add: (v) => upstream({ name: v.name, kind: "openapi", document: v.document, url: some(v.url), api_secret: some(v.secret), private_network: v.private === "on" }),
  },
  a2a: {
    title: "A2A agent by its card",
    about: "Each of its skills becomes a tool.",
    fields: [
      ["name", "Name"],
      ["url", "URL of the card"],
      ["secret", "Secret with its bearer token", "secret"],
      ["private", "It is on this machine or in a private network", "check"],
    ],
    add: (v) => upstream({ name: v.name, kind: "a2a", url: v.url, bearer_secret: some(v.secret), private_network: v.private === "on" }),
  },
  endpoint: {
    title: "Endpoint with modules",
    about: "A program that speaks the capability router's protocol: an elizaOS agent, or one made with an SDK.",
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
    title: "Endpoint that a cloud makes",
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
    about: "Makes a token that lets devices in for an hour, and shows the command to run on the device.",
    fields: [["name", "Name"]],
    add: (v) =>
      post<any>("/api/v1/tokens", { role: "node", name: v.name, expires: "1h" }).then(
        (t) => `Shown once. On the device, write this token to a file: ${t.token} — then run: junctor node join ${location.origin} --node-token-file FILE`,
      ),
  },
};

/** Adds one provider of another kind. */
function Add() {
  const kind = useSignal("mcp");
  const values = useSignal<Record<string, string>>({});
  const done = useSignal("");
  const secrets = useLoad<{ secrets: { name: string }[] }>("/api/v1/secrets", /^secret\./);
  const k = kinds[kind.value];
  const set = (name: string, v: string) => (values.value = { ...values.value, [name]: v });
  const missing = k.fields.filter(([name, , how]) => !how && !values.value[name]?.trim());
  return (
    <form
      aria-label="Add a provider"
      onSubmit={(e) => e.preventDefault()}
    >
      <label class="field">
        Or add
        <select value={kind.value} onChange={(e) => ((kind.value = e.currentTarget.value), (values.value = {}), (done.value = ""))}>
          {Object.entries(kinds).map(([id, one]) => (
            <option key={id} value={id}>
              {one.title}
            </option>
          ))}
        </select>
      </label>
      <p class="sub">{k.about}</p>
      {k.fields.map(([name, label, how]) =>
        how === "check" ? (
          <p key={name}>
            <label>
              <input type="checkbox" checked={values.value[name] === "on"} onChange={(e) => set(name, e.currentTarget.checked ? "on" : "")} /> {label}
            </label>
          </p>
        ) : (
          <label class="field" key={name}>
            {label}
            {how === "secret" ? (
              <select value={values.value[name] ?? ""} onChange={(e) => set(name, e.currentTarget.value)}>
                <option value="">none; “junctor secrets set NAME” stores one</option>
                {(secrets.data?.secrets ?? []).map((s) => (
                  <option key={s.name}>{s.name}</option>
                ))}
              </select>
            ) : (
              <Field secret={how === "password"} value={values.value[name] ?? ""} set={(v) => set(name, v)} />
            )}
          </label>
        ),
      )}
      <p class="btns">
        {missing.length === 0 ? (
          <Act
            kind="p"
            do={async () => {
              done.value = "";
              done.value = await k.add(values.value);
              values.value = {};
            }}
          >
            Add it
          </Act>
        ) : (
          <button type="button" class="b" disabled>
            Add it
          </button>
        )}
      </p>
      {done.value && (
        <p class="note" role="status">
          {visible(done.value)}
        </p>
      )}
    </form>
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
  record?: { name: string; command?: string[]; url?: string; trust?: string };
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
      <h2>Search the registry</h2>
      <div class="bar">
        <input type="search" aria-label="Words" placeholder="words of its name" value={words.value} onInput={(e) => (words.value = e.currentTarget.value)} />
        <Act do={search}>Search</Act>
      </div>
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
              <pre tabIndex={0}>{visible(p.record.url ?? p.record.command?.join(" "))}</pre>
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
