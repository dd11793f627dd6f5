import { useSignal } from "@preact/signals";
import { Failure, post, remove } from "../api";
import { href } from "../route";
import { Act, Show, Tag, Title, Trouble, useLoad, visible } from "../ui";

interface Client {
  name: string;
  title: string;
  found: boolean;
  file: string;
  connected: boolean;
  set_up: boolean;
  servers: { name: string }[];
}

export function Connect() {
  const clients = useLoad<{ clients: Client[] }>("/api/v1/clients", /^client\./, 10000);
  const preview = useSignal<{ name: string; diff: string } | null>(null);
  const failed = useSignal<Failure | null>(null);
  const show = async (c: Client) => {
    failed.value = null;
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
      <Show of={clients}>
        {({ clients: list }) => (
          <ul class="list">
            {[...list].sort((a, b) => Number(b.found) - Number(a.found)).map((c) => (
              <li key={c.name}>
                <div class="row c-four">
                  <span>
                    <b>{c.title}</b>
                  </span>
                  <span class="m opt clip">{c.file}</span>
                  <Tag is={c.connected ? "ok" : ""}>{c.connected ? "connected" : c.found ? "found" : "not found"}</Tag>
                  <span class="btns">
                    {c.found && !c.connected && <Act do={() => show(c)}>Connect…</Act>}
                    {c.set_up && (
                      <Act kind="d" do={() => remove(`/api/v1/clients/${c.name}`).then(clients.reload)}>
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
      <AddServer />
      <p>
        <a href={href("/providers")}>Everything that is connected</a>
      </p>
    </>
  );
}

/** Reads the forms of mcp.json that clients use: {mcpServers: {name: {command, args, env, url}}}. */
export function parseServers(text: string): { name: string; body: any; secrets: string[] }[] {
  const parsed = JSON.parse(text);
  const servers = parsed.mcpServers ?? parsed.servers ?? parsed["mcp"]?.servers ?? parsed;
  if (!servers || typeof servers !== "object") throw new Error("it has no member mcpServers");
  return Object.entries<any>(servers).map(([name, s]) => {
    if (!s || typeof s !== "object" || (!s.command && !s.url)) throw new Error(`${name} has neither command nor url`);
    const secrets = Object.entries<string>({ ...(s.env ?? {}), ...(s.headers ?? {}) })
      .filter(([k, v]) => /key|token|secret|password|authorization/i.test(k) || /^(sk-|gh[pousr]_|xox|Bearer )/.test(String(v)))
      .map(([k]) => k);
    const command = s.command ? [s.command, ...(s.args ?? [])] : undefined;
    return { name, body: { name, command, url: s.url, env: s.env, headers: s.headers }, secrets };
  });
}

function AddServer() {
  const text = useSignal("");
  const found = useSignal<ReturnType<typeof parseServers>>([]);
  const wrong = useSignal("");
  const done = useSignal<Record<string, string>>({});
  return (
    <>
      <label class="field">
        Paste the MCP servers of a client (mcp.json)
        <textarea
          value={text.value}
          spellcheck={false}
          placeholder={'{"mcpServers": {"files": {"command": "npx", "args": ["-y", "…"]}}}'}
          onInput={(e) => {
            text.value = e.currentTarget.value;
            wrong.value = "";
            found.value = [];
            if (!text.value.trim()) return;
            try {
              found.value = parseServers(text.value);
            } catch (err) {
              wrong.value = (err as Error).message;
            }
          }}
        />
      </label>
      {wrong.value && <p class="note bad">This cannot be read: {visible(wrong.value)}.</p>}
      {found.value.length > 0 && (
        <ul class="list">
          {found.value.map((s) => (
            <li class="row c-four" key={s.name}>
              <b>{visible(s.name)}</b>
              <span class="m clip">{visible(s.body.command?.join(" ") ?? s.body.url)}</span>
              <span class="who opt">{s.secrets.length ? `holds credentials: ${s.secrets.join(", ")}` : "runs confined"}</span>
              {s.secrets.length ? (
                <span class="who">junctor setup moves it with its credentials</span>
              ) : (
                <span class="btns">
                  {done.value[s.name] ? (
                    <Tag is="ok">{done.value[s.name]}</Tag>
                  ) : (
                    <Act do={() => post("/api/v1/upstreams", s.body).then((r: any) => (done.value = { ...done.value, [s.name]: `added, ${r?.counts?.tools ?? r?.tools ?? 0} tools` }))}>
                      Add it
                    </Act>
                  )}
                </span>
              )}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
