import { useSignal } from "@preact/signals";
import { post, remove } from "../api";
import { Act, Ago, Empty, Show, Tag, Title, useLoad, visible } from "../ui";

const base = "/api/v1/channels";
const pathOf = (a: any) => `${base}/${encodeURIComponent(a.kind)}/${encodeURIComponent(a.account)}`;

export function Channels() {
  const list = useLoad<{ channels: any[]; kinds: any[] }>(base, /^(channel|token)\./, 5000);
  return (
    <>
      <Title sub="Chat services in which people talk to the agent and decide approvals.">Channels</Title>
      <Show of={list}>
        {({ channels, kinds }) => (
          <>
            {channels.length === 0 ? (
              <Empty>No account of a chat service is set up. Choose a service below; then pair the people who use it.</Empty>
            ) : (
              channels.map((a) => <Account key={`${a.kind}:${a.account}`} a={a} reload={list.reload} />)
            )}
            <h2>Add an account</h2>
            <Add kinds={kinds} done={list.reload} />
          </>
        )}
      </Show>
    </>
  );
}

function Account({ a, reload }: { a: any; reload: () => void }) {
  const name = useSignal("");
  const role = useSignal("operator");
  const code = useSignal<{ send: string; expires: string } | null>(null);
  const ref = `${a.kind}:${a.account}`;
  const state = a.state?.state ?? "elsewhere";
  return (
    <section aria-label={ref}>
      <h2>
        {visible(ref)} <Tag is={state === "ready" ? "ok" : state === "starting" || state === "elsewhere" ? "" : "bad"}>{state === "elsewhere" ? `on ${a.gateway}` : state}</Tag>
        <span class="n">{visible(a.name)}</span>
      </h2>
      {state !== "ready" && a.state?.reason && <p class="note bad">{visible(a.state.reason)}</p>}
      {a.verify === "off" && <p class="note">Buttons approve dangerous calls here, too, without a code.</p>}
      {a.guests?.length > 0 && (
        <p class="note">
          People who are not paired may talk to the agent, which only reads for them, in: <span class="m">{a.guests.map(visible).join(" ")}</span>
        </p>
      )}
      {a.people.length === 0 ? (
        <Empty>No person is paired. Make a pairing code below, and send it to the account.</Empty>
      ) : (
        <ul class="list" aria-label={`People of ${ref}`}>
          {a.people.map((p: any) => (
            <li class="row c-four" key={p.user}>
              <b class="clip">{visible(p.principal)}</b>
              <span class="who opt clip">
                {visible(p.name)} {visible(p.user)}
              </span>
              <Ago at={p.paired} />
              <Act kind="d" do={() => (confirm(`End the access of ${p.principal}?`) ? remove(`${pathOf(a)}/people/${encodeURIComponent(p.user)}`).then(reload) : Promise.resolve())}>
                Unpair
              </Act>
            </li>
          ))}
        </ul>
      )}
      <div class="bar">
        <select aria-label={`Role of the person to pair with ${ref}`} value={role.value} onChange={(e) => (role.value = e.currentTarget.value)}>
          <option value="operator">operator: talks to the agent, decides approvals</option>
          <option value="agent">agent: talks to the agent</option>
        </select>
        <input aria-label={`Name of the person to pair with ${ref}`} placeholder="name, such as ann" value={name.value} onInput={(e) => (name.value = e.currentTarget.value)} />
        <Act do={async () => (code.value = await post(`${pathOf(a)}/people`, { role: role.value, name: name.value }))}>Make a pairing code</Act>
        <Act kind="d" do={() => (confirm(`Remove ${ref}? Its people lose their access.`) ? remove(pathOf(a)).then(reload) : Promise.resolve())}>
          Remove the account
        </Act>
      </div>
      {code.value && (
        <p class="note" role="status">
          Send this to the account, in the conversation with it alone: <span class="m">{visible(code.value.send)}</span>. It works once, until{" "}
          {new Date(code.value.expires).toLocaleTimeString()}.
        </p>
      )}
    </section>
  );
}

function Add({ kinds, done }: { kinds: any[]; done: () => void }) {
  const secrets = useLoad<{ secrets: any[] }>("/api/v1/secrets", /^secret\./);
  const kind = useSignal("telegram");
  const form = useSignal({ account: "", secret: "", url: "", guests: "", tasks: false, greet: false });
  const set = (part: object) => (form.value = { ...form.value, ...part });
  const chosen = kinds.find((k) => k.name === kind.value);
  const create = async () => {
    await post(base, { kind: kind.value, ...form.value, guests: form.value.guests.split(/\s+/).filter(Boolean) });
    set({ account: "", url: "", guests: "" });
    done();
  };
  const text = (name: "account" | "url" | "guests", label: string) => (
    <label class="field">
      {label}
      <input value={form.value[name]} onInput={(e) => set({ [name]: e.currentTarget.value })} />
    </label>
  );
  const check = (name: "tasks" | "greet", label: string) => (
    <label class="check">
      <input type="checkbox" checked={form.value[name]} onChange={(e) => set({ [name]: e.currentTarget.checked })} /> {label}
    </label>
  );
  return (
    <form onSubmit={(e) => e.preventDefault()}>
      <label class="field">
        Service
        <select value={kind.value} onChange={(e) => (kind.value = e.currentTarget.value)}>
          {kinds.map((k) => (
            <option key={k.name} value={k.name}>
              {k.label}
            </option>
          ))}
        </select>
      </label>
      <p class="sub">{visible(chosen?.blurb)}</p>
      <label class="field">
        Secret with the token (required)
        <select value={form.value.secret} onChange={(e) => set({ secret: e.currentTarget.value })}>
          <option value="">choose one</option>
          {(secrets.data?.secrets ?? []).map((s) => (
            <option key={s.name}>{s.name}</option>
          ))}
        </select>
        <span class="hint">
          Store one at the terminal: <code class="m">junctor secrets set NAME</code>
        </span>
      </label>
      {text("account", "Name of the account here (default)")}
      {text("url", chosen?.needs_url ? "Address of the service (required)" : "Another address of the service (optional)")}
      {text("guests", "Ids of groups in which people who are not paired may talk to the agent, which only reads for them (optional)")}
      {check("tasks", "Operators get the starts, questions and results of all tasks")}
      {check("greet", "People who are not paired get one line as an answer")}
      <div class="btns">
        <Act kind="p" off={!form.value.secret || (chosen?.needs_url && !form.value.url.trim())} do={create}>
          Add the account
        </Act>
      </div>
    </form>
  );
}
