import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Failure, call, post } from "../api";
import { href } from "../route";
import { Empty, Show, Tag, Title, Trouble, messageLimit, useLoad, visible } from "../ui";

interface View {
  id: string;
  module: string;
  endpoint: string;
  label: string;
  viewType: string;
  bundleUrl?: string;
  availability?: { state: string };
}

export function Views() {
  const list = useLoad<{ views: View[] }>("/api/v1/views", /^(catalog|endpoint)\./);
  return (
    <>
      <Title sub="Pages that endpoints bring along. Each runs in a frame of its own, without connections, and reaches the routes of its own module only.">Views</Title>
      <Show of={list}>
        {({ views }) =>
          views.length === 0 ? (
            <Empty command="junctor connect URL">No endpoint that is connected has a view.</Empty>
          ) : (
            <ul class="list">
              {views.map((v) => (
                <li key={`${v.module} ${v.id}`}>
                  <a class="row c-flat" href={href(`/views/${encodeURIComponent(v.module)}/${encodeURIComponent(v.id)}`)}>
                    <Tag is={v.availability?.state === "ready" ? "ok" : "bad"}>{visible(v.availability?.state ?? "unknown")}</Tag>
                    <b>{visible(v.label || v.id)}</b>
                    <span class="who opt">{visible(v.module)}</span>
                    <span class="t">{visible(v.viewType)}</span>
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

export function ViewPage(p: { module: string; id: string }) {
  const frame = useRef<HTMLIFrameElement>(null);
  const ticket = useSignal<{ url: string; ticket: string } | null>(null);
  const failed = useSignal<Failure | null>(null);
  const height = useSignal(320);
  const round = useSignal(0);
  useEffect(() => {
    ticket.value = null;
    failed.value = null;
    post("/console/frames", { module: p.module, view: p.id }).then(
      (t) => (ticket.value = t),
      (e) => (failed.value = e),
    );
  }, [p.module, p.id, round.value]);
  const loaded = () => {
    const t = ticket.value;
    if (!t || !frame.current?.contentWindow) return;
    const { port1, port2 } = new MessageChannel();
    const tooMany = messageLimit();
    let ask = true; // until the person has refused to give the code
    port1.onmessage = async (e) => {
      const excess = tooMany();
      const { id, kind, params } = e.data ?? {};
      if (excess) {
        if (id) port1.postMessage({ id, error: excess });
        return;
      }
      if (kind === "resize") {
        height.value = Math.max(80, Math.min(4000, Number(params?.height) || 320));
        return;
      }
      if (kind !== "route.call") {
        if (id) port1.postMessage({ id, error: `the console does not offer ${String(kind).slice(0, 40)}` });
        return;
      }
      try {
        const value = await call("POST", `/console/frames/${t.ticket}/call`, { method: String(params?.method ?? "GET"), path: String(params?.path ?? "/"), body: params?.body }, false, ask);
        port1.postMessage({ id, value });
      } catch (err) {
        if ((err as Failure).code === "cancelled") ask = false;
        port1.postMessage({ id, error: (err as Error).message });
      }
    };
    // The frame has an opaque origin, so "*" is the only target; the port goes to this frame alone.
    frame.current.contentWindow.postMessage({ kind: "junctor", theme: document.documentElement.dataset.theme }, "*", [port2]);
  };
  return (
    <>
      <Title sub={<>From {visible(p.module)}</>}>{visible(p.id)}</Title>
      <p class="btns">
        <button type="button" class="b" onClick={() => round.value++}>
          Reload
        </button>
      </p>
      {failed.value && <Trouble error={failed.value} />}
      {ticket.value && (
        <iframe
          key={ticket.value.ticket}
          ref={frame}
          class="frame"
          title={`View ${p.id} of ${p.module}`}
          sandbox="allow-scripts"
          referrerpolicy="no-referrer"
          src={ticket.value.url}
          style={{ height: `${height.value}px` }}
          onLoad={loaded}
        />
      )}
    </>
  );
}
