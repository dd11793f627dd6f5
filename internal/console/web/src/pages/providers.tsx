import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { get, post, remove } from "../api";
import { Effect } from "../effect";
import { usePerspective } from "../perspective";
import { kindWord } from "../provider";
import { go, href } from "../route";
import { Act, Ago, Empty, Head, type Loaded, Show, Tag, Title, Trouble, count, json, useLoad, visible } from "../ui";
import { Fact } from "./audit";
import { decisions, decisionWords } from "./catalog";

interface Listed {
  id: string;
  kind: string;
  state: string;
  good: boolean;
  about: string;
  offers: ComponentChildren;
  path?: string;
  managed?: { file: string };
}

export function Providers() {
  const upstreams = useLoad<{ upstreams: any[] }>("/api/v1/upstreams", /^(upstream|catalog)\./);
  const endpoints = useLoad<{ endpoints: any[] }>("/api/capability-router/endpoints", /^(endpoint|catalog)\./);
  const extensions = useLoad<{ extensions: any[] }>("/api/v1/extensions", /^(extension|catalog)\./);
  const loads: Loaded<unknown>[] = [upstreams, endpoints, extensions];
  const list: Listed[] = [
    ...(upstreams.data?.upstreams ?? []).map((u) => ({
      id: u.name,
      kind: u.kind || "mcp",
      state: u.disabled ? "disabled" : u.state,
      good: u.state === "ready",
      about: u.command?.join(" ") ?? u.url,
      offers: count(u.counts?.tools ?? 0, "tool"),
      path: `/providers/${encodeURIComponent(u.name)}`,
      managed: u.managed,
    })),
    ...(endpoints.data?.endpoints ?? []).map((e) => ({
      id: e.id,
      kind: "endpoint",
      state: e.state ?? "",
      good: e.state === "ready" || e.connected,
      about: e.baseUrl ?? e.url,
      offers: (
        <>
          {count((e.modules ?? []).length, "module")} <Act do={() => post(`/api/capability-router/endpoints/${encodeURIComponent(e.id)}/sync`).then(endpoints.reload)}>Sync</Act>
        </>
      ),
      managed: e.managed,
    })),
    ...(extensions.data?.extensions ?? []).map((x) => ({
      id: x.id,
      kind: "extension",
      state: x.enabled ? "enabled" : "disabled",
      good: x.enabled,
      about: x.description,
      offers: `version ${visible(x.version)}`,
      path: `/providers/extensions/${encodeURIComponent(x.id)}`,
    })),
  ];
  const loaded = loads.every((l) => l.data !== null);
  return (
    <>
      <Title sub="What agents can use through junctor: MCP servers, APIs, other agents, endpoints and extensions. Devices are on the page Nodes." action={["Add a provider", "/add"]}>
        Providers
      </Title>
      {loads.find((l) => l.error) && <Trouble error={loads.find((l) => l.error)!.error!} />}
      {list.length > 0 ? (
        <>
          <Head of="c-prov" names={["Name", "Kind", "Program or address", "State", "Offers"]} />
          <ul class="list" aria-label="Providers">
            {list.map((p) => {
              const row = (
                <>
                  <span class="clip">
                    <b>{visible(p.id)}</b> <Managed by={p.managed} />
                  </span>
                  <span class="who">{kindWord(p.kind)}</span>
                  <span class={`opt clip ${p.kind === "extension" ? "who" : "m"}`} title={visible(p.about)}>
                    {visible(p.about)}
                  </span>
                  <Tag is={p.good ? "ok" : p.state === "disabled" ? "" : "bad"}>{visible(p.state)}</Tag>
                  <span class="t">{p.offers}</span>
                </>
              );
              return (
                <li key={`${p.kind} ${p.id}`}>
                  {p.path ? (
                    <a class="row c-prov" href={href(p.path)}>
                      {row}
                    </a>
                  ) : (
                    <div class="row c-prov">{row}</div>
                  )}
                </li>
              );
            })}
          </ul>
        </>
      ) : loaded ? (
        <Empty command="junctor mcp add NAME -- COMMAND">
          Nothing is connected yet. <a href={href("/add")}>Choose what to connect</a> here, or add it at the terminal:
        </Empty>
      ) : (
        !loads.some((l) => l.error) && <p class="sub">Loading…</p>
      )}
    </>
  );
}

/** The file that declares an object, which only it can change. */
function Managed({ by }: { by?: { file: string } }) {
  return by ? <span class="who">managed by {visible(by.file)}</span> : null;
}

interface CatalogTool {
  tool: string;
  effect: string;
  decision: string;
}

/** What a server offers of one kind. Its tools have what they do, and the decision about a call. */
function Definitions(p: { kind: string; list: any[]; tools: CatalogTool[]; as: string; name: string }) {
  const title = p.kind.charAt(0).toUpperCase() + p.kind.slice(1).replaceAll("_", " ");
  return (
    <>
      <h2>
        {visible(title)}s ({p.list.length})
      </h2>
      {p.kind === "tool" && <Head of="c-def" names={["Name", "Effect", `For ${p.name}`]} />}
      <ul class="list" aria-label={`${title}s`}>
        {p.list.map((d) => {
          const t = p.tools.find((one) => one.tool.endsWith(`/${d.name}`));
          return (
            <li key={d.name}>
              <a class="row c-def" href={href(t ? `/catalog/${encodeURIComponent(t.tool)}?as=${encodeURIComponent(p.as)}` : `/catalog?q=${encodeURIComponent(d.name)}`)}>
                <span class="clip" title={visible(d.description)}>
                  {d.state !== "published" && <Tag is="wait">{d.state}</Tag>} <b>{visible(d.name)}</b> <span class="who">{visible(d.description)}</span>
                </span>
                {t && <Effect of={t.effect} />}
                {t && (
                  <span title={`for ${p.name}`}>
                    <Tag is={decisions[t.decision]}>{decisionWords[t.decision] ?? t.decision}</Tag>
                  </span>
                )}
              </a>
            </li>
          );
        })}
      </ul>
    </>
  );
}

export function ProviderPage(p: { name: string }) {
  const base = `/api/v1/upstreams/${encodeURIComponent(p.name)}`;
  const one = useLoad<any>(base, /^(upstream|catalog)\./);
  const diff = useSignal<any>(null);
  const { as, name } = usePerspective();
  const tools = useLoad<{ tools: CatalogTool[] }>(as === null ? null : `/api/v1/tools?limit=1000&server=${encodeURIComponent(p.name)}${as && `&as=${encodeURIComponent(as)}`}`, /^(catalog|grant|policy)\./);
  return (
    <Show of={one}>
      {(u) => (
        <>
          <Title
            up={["Providers", "/providers"]}
            sub={
              <>
                {kindWord(u.kind || "mcp")} <Tag is={u.state === "ready" ? "ok" : "bad"}>{u.state}</Tag> for <Ago at={u.since} />{u.error && `: ${visible(u.error)}`}
              </>
            }
          >
            {visible(u.name)}
          </Title>
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
          <div class="two">
            <div>
              {[...new Set<string>((u.definitions ?? []).map((d: any) => d.kind))].map((kind) => (
                <Definitions key={kind} kind={kind} list={u.definitions.filter((d: any) => d.kind === kind)} tools={tools.data?.tools ?? []} as={as ?? ""} name={name} />
              ))}
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
