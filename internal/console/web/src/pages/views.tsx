import { useSignal } from "@preact/signals";
import { href } from "../route";
import { Empty, Show, Tag, Title, useLoad, visible } from "../ui";
import { type Contributed, type Kind, Frame, Slot, tabPath, useContributed, viewPath } from "./frames";

// shown are the slots of this console; widgets of other ones are listed.
const shown: Record<string, string> = { "chat-sidebar": "on the page Chat", "chat-inline": "on the page Chat", "nav-page": "on this page", settings: "on the page System" };

export function Views() {
  const list = useLoad<{ views: Contributed[] }>("/api/v1/views", /^(catalog|endpoint)\./);
  const tabs = useContributed("nav");
  const widgets = useContributed("widgets");
  return (
    <>
      <Title sub="Pages that endpoints bring along. Each runs in a frame of its own, without connections, and reaches the routes of its own module only.">Views</Title>
      <Show of={list}>
        {({ views }) =>
          views.length === 0 ? (
            <Empty command="junctor endpoints add URL">No endpoint that is connected has a view. <a href={href("/add/endpoint")}>Add an endpoint</a></Empty>
          ) : (
            <ul class="list" aria-label="Views">
              {[...views.map((v) => ({ ...v, path: viewPath(v), kind: v.viewType ?? "gui" })), ...tabs.map((t) => ({ ...t, path: tabPath(t), kind: "tab" }))].map((v) => (
                <li key={v.path}>
                  <a class="row c-flat" href={href(v.path)}>
                    <Tag is={v.availability?.state === "ready" ? "ok" : "bad"}>{visible(v.availability?.state ?? "unknown")}</Tag>
                    <b>{visible(v.label || v.id)}</b>
                    <span class="who opt">{visible(v.module)}</span>
                    <span class="t">{visible(v.kind)}</span>
                  </a>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
      {widgets.length > 0 && (
        <>
          <h2>Widgets</h2>
          <ul class="list" aria-label="Widgets">
            {widgets.map((w) => (
              <li class="row c-four" key={`${w.module} ${w.id}`}>
                <b class="clip">{visible(w.label || w.id)}</b>
                <span class="who opt clip">{visible(w.module)}</span>
                <span class="who opt">{visible(w.slot)}</span>
                <span class="who">{shown[w.slot ?? ""] ?? "not shown here"}</span>
              </li>
            ))}
          </ul>
          <Slot name="nav-page" />
        </>
      )}
    </>
  );
}

export function ViewPage(p: { module: string; id: string; kind: Kind }) {
  const round = useSignal(0);
  return (
    <>
      <Title sub={<>From {visible(p.module)}</>}>{visible(p.id)}</Title>
      <p class="btns">
        <button type="button" class="b" onClick={() => round.value++}>
          Reload
        </button>
      </p>
      <Frame key={round.value} module={p.module} kind={p.kind} id={p.id} title={`${p.kind === "tab" ? "Tab" : "View"} ${p.id} of ${p.module}`} />
    </>
  );
}
