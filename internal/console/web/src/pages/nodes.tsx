import { post, remove } from "../api";
import { go, href } from "../route";
import { Act, Ago, Empty, Show, Tag, Title, useLoad, visible } from "../ui";
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
