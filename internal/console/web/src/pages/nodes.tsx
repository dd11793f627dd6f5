import { useSignal } from "@preact/signals";
import { post, remove } from "../api";
import { go, href } from "../route";
import { Act, Ago, Empty, Head, More, Show, Tag, Title, Virtual, count, useLoad, usePaged, useStill, visible } from "../ui";
import { Fact } from "./audit";

export function Nodes() {
  const typed = useSignal("");
  const text = useStill(typed.value);
  const called = useSignal("");
  const has = useStill(called.value);
  const status = useSignal("");
  const filter = new URLSearchParams({ limit: "200" });
  for (const [k, v] of Object.entries({ q: text, function: has, status: status.value })) if (v) filter.set(k, v);
  const { list, items, next, more } = usePaged<any>("/api/v1/nodes", "nodes", "cursor", filter, /^(node|skill)\./, 5000);
  return (
    <>
      <Title sub="Devices that offer functions: they connect to junctor, nothing connects to them." action={["Add a device", "/add/device"]}>
        Nodes
      </Title>
      <div class="bar">
        <input type="search" aria-label="Id" placeholder="part of an id" value={typed.value} onInput={(e) => (typed.value = e.currentTarget.value)} />
        <input type="search" aria-label="Function" placeholder="has the function" value={called.value} onInput={(e) => (called.value = e.currentTarget.value)} />
        <select aria-label="State" value={status.value} onChange={(e) => (status.value = e.currentTarget.value)}>
          <option value="">any state</option>
          {["connected", "draining", "disconnected"].map((s) => (
            <option key={s}>{s}</option>
          ))}
        </select>
        <span class="n">{list.data ? count(list.data.total, "node") : ""}</span>
      </div>
      <Show of={list}>
        {({ total }) =>
          total === 0 && filter.size === 1 ? (
            <Empty command="junctor node join URL --node-token-file FILE">
              No device has joined. <a href={href("/add/device")}>Create its token</a>, then run this on the device:
            </Empty>
          ) : total === 0 ? (
            <Empty>
              No node matches{text && ` the id “${text}”`}
              {has && ` the function “${has}”`}
              {status.value && ` the state ${status.value}`}.
            </Empty>
          ) : (
            <>
              <Head of="c-node" names={["Id", "State", "Offers", "Load", "Seen"]} />
              <Virtual
                label="Nodes"
                items={items}
                row={(n, _, style) => (
                  <a class="row c-node" style={style} key={n.node_id} href={href(`/nodes/${encodeURIComponent(n.node_id)}`)}>
                    <b class="clip">{visible(n.node_id)}</b>
                    <Tag is={n.status === "connected" ? "ok" : "bad"}>{n.status}</Tag>
                    <span class="who opt clip">
                      {count(n.functions.length, "function")}, {visible(n.os)}/{visible(n.arch)}
                    </span>
                    <span class="who opt">{Math.round((n.current_load ?? 0) * 100)} %</span>
                    <Ago at={n.last_heartbeat * 1000} />
                  </a>
                )}
              />
              <More next={next} shown={items.length} total={total} more={more} />
            </>
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
            <Title up={["Nodes", "/nodes"]} sub={<Tag is={n.status === "connected" ? "ok" : "bad"}>{n.status}</Tag>}>{visible(n.node_id)}</Title>
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
