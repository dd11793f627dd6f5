import { useSignal } from "@preact/signals";
import { get, post, remove } from "../api";
import { add, offered } from "../passkey";
import { go, href } from "../route";
import { Act, Ago, Empty, Show, Tag, Title, json, useLoad, visible } from "../ui";
import { Fact } from "./audit";

export function Nodes() {
  const list = useLoad<{ nodes: any[] }>("/api/v1/nodes", /^(node|skill)\./, 5000);
  return (
    <>
      <Title sub="Devices that offer functions: they connect to junctor, nothing connects to them.">Nodes</Title>
      <Show of={list}>
        {({ nodes }) =>
          nodes.length === 0 ? (
            <Empty command="junctor node join URL --node-token-file FILE">No device has joined.</Empty>
          ) : (
            <ul class="list">
              {nodes.map((n) => (
                <li key={n.node_id}>
                  <a class="row c-four" href={href(`/nodes/${encodeURIComponent(n.node_id)}`)}>
                    <span class="clip">
                      <b>{visible(n.node_id)}</b> <Tag is={n.status === "connected" ? "ok" : "bad"}>{n.status}</Tag>
                    </span>
                    <span class="who opt clip">{n.functions.length} functions, {visible(n.os)}/{visible(n.arch)}</span>
                    <span class="who opt">load {Math.round((n.current_load ?? 0) * 100)} %</span>
                    <Ago at={n.last_heartbeat * 1000} />
                  </a>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
    </>
  );
}

export function NodePage(p: { id: string }) {
  const base = `/api/v1/nodes/${encodeURIComponent(p.id)}`;
  const one = useLoad<any>(base, /^(node|skill)\./, 5000);
  return (
    <Show of={one}>
      {(body) => {
        const n = body.node ?? body;
        return (
          <>
            <Title sub={<Tag is={n.status === "connected" ? "ok" : "bad"}>{n.status}</Tag>}>{visible(n.node_id)}</Title>
            <div class="two">
              <div>
                <h2>Functions</h2>
                <ul class="list">
                  {(n.functions ?? []).map((f: any) => (
                    <li class="row" key={f.name ?? f}>
                      <span>
                        <b>{visible(f.name ?? f)}</b> <span class="who">{visible(f.description ?? "")}</span>
                      </span>
                    </li>
                  ))}
                </ul>
              </div>
              <aside>
                <div class="btns">
                  <Act do={() => post(`${base}/drain`).then(one.reload)}>Drain</Act>
                  <Act kind="d" do={() => (confirm(`Remove ${n.node_id}? It has to join again.`) ? remove(base).then(() => go("/nodes")) : Promise.resolve())}>
                    Remove
                  </Act>
                </div>
                <dl>
                  <Fact name="Version" value={n.version} />
                  <Fact name="System" value={`${n.os}/${n.arch}`} />
                  <Fact name="Running" value={`${n.active} of ${n.max_concurrent}`} />
                  <Fact name="Queued" value={n.queued} />
                  <Fact name="Joined" value={n.joined && new Date(n.joined).toLocaleString()} />
                </dl>
              </aside>
            </div>
          </>
        );
      }}
    </Show>
  );
}

function Passkeys() {
  const passkeys = useLoad<{ passkeys: any[] }>("/api/v1/console/passkeys", /^passkey\./);
  const name = useSignal("");
  return (
    <>
      <h2>
        Passkeys <span class="n">with one, you confirm dangerous decisions by touching it, and no code is taken</span>
      </h2>
      {offered() && (
        <div class="bar">
          <input aria-label="Name of a new passkey" placeholder="name, such as laptop" maxLength={60} value={name.value} onInput={(e) => (name.value = e.currentTarget.value)} />
          <Act do={async () => (await add(name.value), (name.value = ""), passkeys.reload())}>Add a passkey</Act>
        </div>
      )}
      <Show of={passkeys}>
        {({ passkeys: list }) =>
          list.length === 0 ? (
            <Empty>{offered() ? "No passkey was added." : "This browser offers no passkeys here."}</Empty>
          ) : (
            <ul class="list" aria-label="Passkeys">
              {list.map((p) => (
                <li class="row c-four" key={p.id}>
                  <b class="clip">{visible(p.name || p.id)}</b>
                  <span class="m clip">{visible(p.principal)}</span>
                  <Ago at={p.created} />
                  <Act kind="d" do={() => (confirm(`Remove the passkey ${p.name || p.id}?`) ? remove(`/api/v1/console/passkeys/${p.id}`).then(passkeys.reload) : Promise.resolve())}>
                    Remove
                  </Act>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
    </>
  );
}

export function Access() {
  const tokens = useLoad<{ tokens: any[] }>("/api/v1/tokens", /^token\./);
  const grants = useLoad<{ grants: any[] }>("/api/v1/grants", /^(grant|approval|confirmation)\./);
  const rules = useLoad<{ rules: any[] }>("/api/v1/policy", /^policy\./);
  const sessions = useLoad<{ sessions: any[] }>("/api/v1/console/sessions", /^session\./);
  const secrets = useLoad<{ secrets: any[] }>("/api/v1/secrets", /^secret\./);
  const made = useSignal<{ name: string; token: string } | null>(null);
  const name = useSignal("");
  const live = (t: any) => !t.revoked && (!t.expires || Date.parse(t.expires) > Date.now());
  return (
    <>
      <Title sub="Who may do what: tokens, grants, rules, secrets and browsers.">Access</Title>
      <h2>Tokens</h2>
      <div class="bar">
        <input aria-label="Name of a new agent token" placeholder="name, such as codex" value={name.value} onInput={(e) => (name.value = e.currentTarget.value)} />
        <Act do={async () => ((made.value = await post("/api/v1/tokens", { role: "agent", name: name.value })), (name.value = ""), tokens.reload())}>Create an agent token</Act>
      </div>
      {made.value && (
        <p class="note">
          The token of {visible(made.value.name)}, shown this once: <span class="m">{made.value.token}</span>
        </p>
      )}
      <Show of={tokens}>
        {({ tokens: list }) => (
          <ul class="list">
            {list.filter(live).map((t) => (
              <li class="row c-four" key={t.id}>
                <b class="clip">
                  {t.role}:{visible(t.name)}
                </b>
                <span class="who opt clip">{(t.labels ?? []).map(visible).join(", ")}</span>
                <Ago at={t.created} />
                <Act kind="d" do={() => (confirm(`Revoke ${t.role}:${t.name}? Its next request is refused.`) ? remove(`/api/v1/tokens/${t.id}`).then(tokens.reload) : Promise.resolve())}>
                  Revoke
                </Act>
              </li>
            ))}
          </ul>
        )}
      </Show>
      <Passkeys />
      <h2>Grants</h2>
      <Show of={grants}>
        {({ grants: list }) => {
          const standing = list.filter((g) => !g.revoked);
          return standing.length === 0 ? (
            <Empty>No approval was given for longer than once.</Empty>
          ) : (
            <ul class="list">
              {standing.map((g) => (
                <li class="row c-four" key={g.id}>
                  <b class="clip">{visible(g.principal || g.role)}</b>
                  <span class="m clip">{visible(g.action || g.module)}</span>
                  <span class="who opt">{g.expires ? `until ${new Date(g.expires).toLocaleString()}` : visible(g.scope)}</span>
                  <Act kind="d" do={() => remove(`/api/v1/grants/${g.id}`).then(grants.reload)}>
                    Revoke
                  </Act>
                </li>
              ))}
            </ul>
          );
        }}
      </Show>
      <h2>
        Rules <span class="n">change them with junctor policy, or in the policy folder</span>
      </h2>
      <Show of={rules}>
        {({ rules: list }) => (
          <>
            {list.map((r) => (
              <div class="code" key={`${r.file}:${r.line}`}>
                <div class="h">
                  <span>
                    <Tag is={r.effect === "forbid" ? "bad" : r.approval ? "wait" : "ok"}>{r.effect === "forbid" ? "forbids" : r.approval ? "asks first" : "allows"}</Tag> {visible(r.id)}
                  </span>
                  <span class="m">
                    {visible(r.file)}:{r.line}
                  </span>
                </div>
                <pre tabIndex={0}>{visible(r.text)}</pre>
              </div>
            ))}
          </>
        )}
      </Show>
      <h2>Secrets</h2>
      <Show of={secrets}>
        {({ secrets: list }) =>
          list.length === 0 ? (
            <Empty command="junctor secrets set NAME">No secret is stored.</Empty>
          ) : (
            <ul class="list">
              {list.map((s) => (
                <li class="row c-flat" key={s.name}>
                  <Tag>secret</Tag>
                  <b>{visible(s.name)}</b>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
      <h2>Browsers</h2>
      <Show of={sessions}>
        {({ sessions: list }) => (
          <ul class="list">
            {list.map((s) => (
              <li class="row c-four" key={s.id}>
                <b class="clip">{visible(s.principal)}</b>
                <span class="m opt clip">{s.id}</span>
                <Ago at={s.used} />
                <Act kind="d" do={() => remove(`/api/v1/console/sessions/${s.id}`).then(sessions.reload)}>
                  Sign out
                </Act>
              </li>
            ))}
          </ul>
        )}
      </Show>
    </>
  );
}

export function System() {
  const status = useLoad<any>("/api/v1/status", /^server\./, 5000);
  const doctor = useLoad<{ checks: any[] }>("/api/v1/doctor", /^server\./, 60000);
  const walls = useSignal<any>(null);
  return (
    <>
      <Title sub={status.data ? `junctor ${status.data.version}, up since ${new Date(status.data.started).toLocaleString()}` : ""}>System</Title>
      <h2>Doctor</h2>
      <Show of={doctor}>
        {({ checks }) => (
          <ul class="list">
            {[...checks].sort((a, b) => Number(a.ok) - Number(b.ok)).map((c) => (
              <li class="row c-two" key={c.name}>
                <Tag is={c.ok ? "ok" : "bad"}>{c.ok ? "good" : "look at it"}</Tag>
                <span>
                  <b>{visible(c.name)}</b> <span class="who">{visible(c.detail)}</span>
                  {c.remedy && <div>{visible(c.remedy)}</div>}
                </span>
              </li>
            ))}
          </ul>
        )}
      </Show>
      <h2>Server</h2>
      <Show of={status}>
        {(s) => (
          <dl>
            <Fact name="Address" value={s.url} />
            <Fact name="Catalog" value={`${s.catalog.entries} entries of ${s.catalog.modules} modules, generation ${s.catalog.generation}`} />
            <Fact name="Audit" value={`${s.audit.seq} records${s.audit.broken ? ", cannot be written" : ""}`} />
          </dl>
        )}
      </Show>
      <h2>Sandbox</h2>
      <Act do={async () => (walls.value = await get("/api/v1/sandbox"))}>Show the last self-test</Act>
      {walls.value && (
        <>
          <p class={`note ${walls.value.held ? "ok" : "bad"}`}>
            Tier {walls.value.tier}: {walls.value.held ? "every act was held" : "an act got through"}.
          </p>
          <div class="code">
            <pre tabIndex={0}>{json({ facts: walls.value.facts, layers: walls.value.layers, limits: walls.value.limits })}</pre>
          </div>
        </>
      )}
    </>
  );
}

/** What the agent did for a reply, as the governed path recorded it, and what it waits for. */
function Deeds({ meta }: { meta: any }) {
  if (!meta?.run) return null;
  const calls: any[] = meta.calls ?? [];
  const count = new Map<string, number>();
  for (const c of calls) {
    const kind = c.failed ? "failed" : (c.effect ?? "call");
    count.set(kind, (count.get(kind) ?? 0) + 1);
  }
  const approved = calls.filter((c) => c.approval && !c.failed).length;
  const done = [...count].map(([kind, n]) => `${n} ${kind}`).join(", ");
  const waits: string[] = meta.status === "waiting" ? (meta.confirmation?.approvals ?? []) : [];
  return (
    <div class="who" title={calls.map((c) => visible(c.name)).join(", ")}>
      {waits.length > 0
        ? waits.map((id) => (
            <a key={id} href={href(`/approvals/${encodeURIComponent(id)}`)}>
              Decide {visible(id)}
            </a>
          ))
        : `Done: ${done || "no call"}${approved ? `; ${approved} with an approval` : ""}`}
    </div>
  );
}

export function Chat(p: { session: string }) {
  const sessions = useLoad<{ sessions: any[] }>("/api/v1/chat/sessions", /^(chat|agent)\./, 10000);
  const log = useLoad<{ messages: any[] }>(p.session ? `/api/v1/chat/sessions/${encodeURIComponent(p.session)}/messages` : null, /^(chat|agent)\./, 10000);
  const commands = useLoad<{ commands: any[] }>("/api/v1/chat/slash-commands", /^extension\./, 60000);
  const text = useSignal("");
  const said = useSignal<{ who: string; text: string; meta?: any }[]>([]);
  const busy = useSignal(false);
  const known = (log.data?.messages ?? []).map((m) => ({ who: m.role ?? m.from ?? "", text: m.text ?? m.content ?? "", meta: m.metadata }));
  const say = async () => {
    const t = text.value.trim();
    if (!t || busy.value) return;
    busy.value = true;
    text.value = "";
    said.value = [...said.value, { who: "you", text: t }];
    try {
      const r = await post<any>("/api/v1/chat/messages", { session_id: p.session || "console", text: t });
      said.value = [...said.value, { who: "junctor", text: r.text ?? r.reply ?? r.message?.text ?? JSON.stringify(r, null, 2), meta: r.message?.metadata }];
    } catch (e) {
      const f = e as any;
      said.value = [...said.value, { who: "junctor", text: `${f.message} ${f.hint ?? ""}` }];
    }
    busy.value = false;
    sessions.reload();
    if (p.session) {
      said.value = [];
      log.reload();
    }
  };
  const hint = text.value.startsWith("/") ? (commands.data?.commands ?? []).filter((c) => c.name.startsWith(text.value.split(" ")[0])) : [];
  return (
    <>
      <Title sub="Slash commands work without a model. With one, the agent answers with the tools that it may use; what was done is below each reply, as the record has it.">Chat</Title>
      <div class="bar">
        {(sessions.data?.sessions ?? []).slice(0, 12).map((s) => (
          <a class="b" key={s.id ?? s.session_id} href={href(`/chat/${encodeURIComponent(s.id ?? s.session_id)}`)} aria-current={(s.id ?? s.session_id) === p.session ? "true" : undefined}>
            {visible(s.title ?? s.id ?? s.session_id)}
          </a>
        ))}
      </div>
      <div class="list" role="log" aria-label="Conversation">
        {[...known, ...said.value].length === 0 && <div class="empty">Nothing was said yet. Type / to see the commands.</div>}
        {[...known, ...said.value].map((m, i) => (
          <div class="msg" key={i}>
            <b>{visible(m.who)}</b>
            {visible(m.text)}
            <Deeds meta={"meta" in m ? m.meta : undefined} />
          </div>
        ))}
      </div>
      <form
        class="bar"
        onSubmit={(e) => {
          e.preventDefault();
          void say();
        }}
      >
        <input type="search" aria-label="Message" placeholder="Message, or / for commands" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
        <button class="b p" type="submit" disabled={busy.value}>
          Send
        </button>
      </form>
      {hint.length > 0 && (
        <ul class="list">
          {hint.map((c) => (
            <li class="row c-flat" key={c.name}>
              <button type="button" class="plain m" onClick={() => (text.value = `${c.name} `)}>
                {visible(c.name)}
              </button>
              <span class="who">{visible(c.summary)}</span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
