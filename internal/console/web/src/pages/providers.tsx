import { useSignal } from "@preact/signals";
import { get, post, remove } from "../api";
import { go, href } from "../route";
import { Act, Ago, Empty, Show, Tag, Title, json, useLoad, visible } from "../ui";
import { Fact } from "./audit";

export function Providers() {
  const upstreams = useLoad<{ upstreams: any[] }>("/api/v1/upstreams", /^(upstream|catalog)\./);
  const endpoints = useLoad<{ endpoints: any[] }>("/api/capability-router/endpoints", /^(endpoint|catalog)\./);
  const extensions = useLoad<{ extensions: any[] }>("/api/v1/extensions", /^(extension|catalog)\./);
  return (
    <>
      <Title sub="What junctor reaches for agents: MCP servers, endpoints and extensions.">Providers</Title>
      <h2>MCP servers and A2A agents</h2>
      <Show of={upstreams}>
        {({ upstreams: list }) =>
          list.length === 0 ? (
            <Empty command="junctor mcp add NAME -- COMMAND">No MCP server is connected.</Empty>
          ) : (
            <ul class="list">
              {list.map((u) => (
                <li key={u.name}>
                  <a class="row c-four" href={href(`/providers/${encodeURIComponent(u.name)}`)}>
                    <span class="clip">
                      <b>{visible(u.name)}</b> <Tag is={u.state === "ready" ? "ok" : "bad"}>{u.disabled ? "disabled" : u.state}</Tag>{" "}
                      <Managed by={u.managed} />
                    </span>
                    <span class="m opt clip">{visible(u.command?.join(" ") ?? u.url)}</span>
                    <span class="who opt">
                      {u.confinement === "sandbox" ? `confined (${u.tier})` : (u.confinement ?? "remote")}
                    </span>
                    <span class="t">{u.counts?.tools ?? 0} tools</span>
                  </a>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
      <h2>Endpoints</h2>
      <Show of={endpoints}>
        {(body) => {
          const list = body.endpoints ?? [];
          return list.length === 0 ? (
            <Empty command="junctor connect URL">No endpoint is connected.</Empty>
          ) : (
            <ul class="list">
              {list.map((e: any) => (
                <li class="row c-four" key={e.id}>
                  <span class="clip">
                    <b>{visible(e.id)}</b> <Tag is={e.state === "ready" || e.connected ? "ok" : "bad"}>{visible(e.state ?? "")}</Tag>{" "}
                    <Managed by={e.managed} />
                  </span>
                  <span class="m opt clip">{visible(e.baseUrl ?? e.url)}</span>
                  <span class="who opt">{(e.modules ?? []).length} modules</span>
                  <Act do={() => post(`/api/capability-router/endpoints/${encodeURIComponent(e.id)}/sync`).then(endpoints.reload)}>Sync</Act>
                </li>
              ))}
            </ul>
          );
        }}
      </Show>
      <h2>Extensions</h2>
      <Show of={extensions}>
        {({ extensions: list }) =>
          list.length === 0 ? (
            <Empty command="junctor extensions install FILE">No extension is installed.</Empty>
          ) : (
            <ul class="list">
              {list.map((x) => (
                <li key={x.id}>
                  <a class="row c-four" href={href(`/providers/extensions/${encodeURIComponent(x.id)}`)}>
                    <span class="clip">
                      <b>{visible(x.id)}</b> <Tag is={x.enabled ? "ok" : ""}>{x.enabled ? "enabled" : "disabled"}</Tag>
                    </span>
                    <span class="who opt clip">{visible(x.description)}</span>
                    <span class="who opt">{(x.permissions_required ?? []).map(visible).join(", ")}</span>
                    <span class="t">{visible(x.version)}</span>
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

/** The file that declares an object, which only it can change. */
function Managed({ by }: { by?: { file: string } }) {
  return by ? <span class="who">managed by {visible(by.file)}</span> : null;
}

export function ProviderPage(p: { name: string }) {
  const base = `/api/v1/upstreams/${encodeURIComponent(p.name)}`;
  const one = useLoad<any>(base, /^(upstream|catalog)\./);
  const diff = useSignal<any>(null);
  return (
    <Show of={one}>
      {(u) => (
        <>
          <Title
            up={["Providers", "/providers"]}
            sub={
              <>
                <Tag is={u.state === "ready" ? "ok" : "bad"}>{u.state}</Tag> {visible(u.error ?? "")} since <Ago at={u.since} />
              </>
            }
          >
            {visible(u.name)}
          </Title>
          <div class="two">
            <div>
              {u.counts?.held + u.counts?.quarantined > 0 && (
                <div class="note">
                  <p>{u.counts.held + u.counts.quarantined} definitions changed or are new. Agents do not see them until you have looked.</p>
                  <div class="btns">
                    <Act do={async () => (diff.value = await get(`${base}/diff`))}>Show the changes</Act>
                    {diff.value && (
                      <Act kind="p" do={() => post(`${base}/approve`, {}).then(() => ((diff.value = null), one.reload()))}>
                        Approve what is shown
                      </Act>
                    )}
                  </div>
                </div>
              )}
              {diff.value && (
                <div class="code">
                  <pre tabIndex={0}>{json(diff.value)}</pre>
                </div>
              )}
              <h2>Definitions</h2>
              <ul class="list">
                {(u.definitions ?? []).map((d: any) => (
                  <li key={`${d.kind} ${d.name}`}>
                    <a class="row c-flat" href={href(`/catalog?q=${encodeURIComponent(d.name)}`)}>
                      <Tag is={d.state === "published" ? "ok" : "wait"}>{d.state}</Tag>
                      <span class="clip">
                        <b>{visible(d.name)}</b> <span class="who">{visible(d.description)}</span>
                      </span>
                      <span class="who opt">{d.kind}</span>
                      <Ago at={d.seen} />
                    </a>
                  </li>
                ))}
              </ul>
            </div>
            <aside>
              <div class="btns">
                <Act do={() => post(`${base}/restart`).then(one.reload)}>Restart</Act>
                {!u.managed && (
                  <Act kind="d" do={() => (confirm(`Remove ${u.name}? Agents lose its tools.`) ? remove(base).then(() => go("/providers")) : Promise.resolve())}>
                    Remove
                  </Act>
                )}
              </div>
              <dl>
                <Fact name="Managed by" value={u.managed && `${u.managed.file}; change it there`} />
                <Fact name="Command" value={u.command?.join(" ")} />
                <Fact name="Address" value={u.url} />
                <Fact name="Runs" value={u.confinement === "sandbox" ? `confined, tier ${u.tier}` : u.confinement} />
                <Fact name="May read" value={u.read_only?.join(", ")} />
                <Fact name="May write" value={u.read_write?.join(", ")} />
                <Fact name="Network" value={u.network?.join(", ")} />
                <Fact name="Server" value={u.server && `${u.server.name} ${u.server.release ?? ""}, MCP ${u.server.version}`} />
                <Fact name="Hints of its tools" value={u.hints_trusted ? "trusted for reads" : "not trusted"} />
                <Fact name="Added" value={u.added && new Date(u.added).toLocaleString()} />
              </dl>
            </aside>
          </div>
        </>
      )}
    </Show>
  );
}
