import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Failure, call, post } from "../api";
import { go, href } from "../route";
import { Act, Trouble, messageLimit, useLoad, visible } from "../ui";

/** What a module offers to a front end: a view, a widget or a navigation tab. */
export interface Contributed {
  id: string;
  module: string;
  endpoint: string;
  label: string;
  viewType?: string;
  bundleUrl?: string;
  slot?: string;
  defaultEnabled?: boolean;
  developerOnly?: boolean;
  availability?: { state: string };
}

export type Kind = "view" | "widget" | "tab";

export const viewPath = (v: Contributed) => `/views/${encodeURIComponent(v.module)}/${encodeURIComponent(v.id)}`;
export const tabPath = (t: Contributed) => `/tabs/${encodeURIComponent(t.module)}/${encodeURIComponent(t.id)}`;

/** The views of modules, and what can be shown with their bundles. */
export function useContributed(kind: "widgets" | "nav") {
  const views = useLoad<{ views: Contributed[] }>("/api/v1/views", /^(catalog|endpoint)\./, 60000);
  const list = useLoad<Record<string, Contributed[]>>(kind === "nav" ? "/api/v1/nav" : "/api/v1/widgets", /^(catalog|endpoint)\./, 60000);
  const bundles = new Set((views.data?.views ?? []).filter((v) => v.bundleUrl).map((v) => v.module));
  return (list.data?.[kind] ?? []).filter((c) => bundles.has(c.module) && !c.developerOnly);
}

/** A link that a frame asks to open, until the person has answered. */
export interface Link {
  url: string;
  answer(opened: boolean): void;
}

export function LinkAsk(p: { link: Link }) {
  return (
    <div class="note" role="alert">
      <p>
        The page asks to open <span class="m">{visible(p.link.url)}</span>
      </p>
      <div class="btns">
        <a class="b p" href={p.link.url} target="_blank" rel="noopener noreferrer" onClick={() => p.link.answer(true)}>
          Open {visible(new URL(p.link.url).host)}
        </a>
        <button type="button" class="b" onClick={() => p.link.answer(false)}>
          Do not open
        </button>
      </div>
    </div>
  );
}

/** Whether the person has used the page of a frame just now. What it does by itself opens nothing, and does not keep the session. */
export const acted = (frame: HTMLIFrameElement | null) => document.activeElement === frame && navigator.userActivation.isActive;

/** The same, for a request that a click in the frame may have overtaken: the browser tells the page of it a moment later. */
export async function hasActed(frame: HTMLIFrameElement | null): Promise<boolean> {
  for (let i = 0; i < 10 && !acted(frame); i++) await new Promise((done) => setTimeout(done, 50));
  return acted(frame);
}

export const canOpen = (url: string) => /^https?:\/\//.test(url) && URL.canParse(url);

const maxMessage = 256 << 10; // characters of JSON
const maxWidgets = 8; // of a slot

/** Code of a module in a frame of its own. It reaches the routes of its module only, as the person who looks at it. */
export function Frame(p: { module: string; kind: Kind; id: string; title: string; min?: number }) {
  const frame = useRef<HTMLIFrameElement>(null);
  const ticket = useSignal<{ url: string; ticket: string } | null>(null);
  const failed = useSignal<Failure | null>(null);
  const height = useSignal(p.min ?? 320);
  const link = useSignal<Link | null>(null);
  const open = () => {
    ticket.value = null;
    failed.value = null;
    return post("/console/frames", { module: p.module, [p.kind]: p.id }).then(
      (t) => (ticket.value = t),
      (e) => (failed.value = e),
    );
  };
  useEffect(() => void open(), [p.module, p.kind, p.id]);
  const loaded = () => {
    const t = ticket.value;
    if (!t || !frame.current?.contentWindow) return;
    const { port1, port2 } = new MessageChannel();
    const tooMany = messageLimit();
    let ask = true; // until the person has refused to give the code
    port1.onmessage = async (e) => {
      const { id, kind, params } = e.data ?? {};
      const answer = (value: unknown) => id && port1.postMessage({ id, value });
      const refuse = (error: string) => id && port1.postMessage({ id, error });
      const excess = tooMany();
      if (excess) return refuse(excess);
      switch (kind) {
        case "resize":
          height.value = Math.max(40, Math.min(4000, Number(params?.height) || 320));
          return;
        case "state.get":
          return answer({ module: p.module, [p.kind]: p.id, theme: document.documentElement.dataset.theme, locale: navigator.language });
        case "navigate":
          // Another view of the same module; the rest of the console is not the frame's to choose.
          if (typeof params?.view !== "string" || !params.view) return refuse("navigate needs the id of a view of the module");
          if (!(await hasActed(frame.current))) return refuse("navigate needs a click of the person");
          go(`/views/${encodeURIComponent(p.module)}/${encodeURIComponent(params.view)}`);
          return answer(null);
        case "open":
          if (!canOpen(String(params?.url ?? ""))) return refuse("the link cannot be opened");
          if (!(await hasActed(frame.current))) return refuse("open needs a click of the person");
          if (link.value) return refuse("the link cannot be opened");
          link.value = {
            url: String(params.url),
            answer(opened) {
              link.value = null;
              if (opened) answer(null);
              else refuse("the person did not open the link");
            },
          };
          return;
        case "route.call": {
          const body = { method: String(params?.method ?? "GET"), path: String(params?.path ?? "/"), body: params?.body };
          try {
            if (JSON.stringify(body).length > maxMessage) return refuse("the message is too large");
            answer(await call("POST", `/console/frames/${t.ticket}/call`, body, !acted(frame.current), ask));
          } catch (err) {
            const { code, reason } = err as Failure;
            if (code === "cancelled") ask = false;
            if (reason === "frame_closed") failed.value = err as Failure;
            refuse((err as Error).message);
          }
          return;
        }
      }
      refuse(`the console does not offer ${String(kind).slice(0, 40)}`);
    };
    // The frame has an opaque origin, so "*" is the only target; the port goes to this frame alone.
    frame.current.contentWindow.postMessage({ kind: "junctor", theme: document.documentElement.dataset.theme }, "*", [port2]);
  };
  return (
    <>
      {failed.value && (
        <>
          <Trouble error={failed.value} />
          <p class="btns">
            <Act do={open}>Open it again</Act>
          </p>
        </>
      )}
      {link.value && <LinkAsk link={link.value} />}
      {ticket.value && (
        <iframe
          key={ticket.value.ticket}
          ref={frame}
          class="frame"
          title={p.title}
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

/** The widgets of a slot, each in a frame while it is open. */
export function Slot(p: { name: string }) {
  const widgets = useContributed("widgets").filter((w) => w.slot === p.name).slice(0, maxWidgets); // the page Views lists all
  return (
    <>
      {widgets.map((w) => (
        <Widget key={`${w.module} ${w.id}`} of={w} />
      ))}
    </>
  );
}

export function Widget(p: { of: Contributed }) {
  const w = p.of;
  const kept = `junctor.widget ${w.module} ${w.id}`;
  const open = useSignal((localStorage.getItem(kept) ?? String(w.defaultEnabled !== false)) === "true");
  return (
    <details
      class="code widget"
      open={open.value}
      onToggle={(e) => {
        open.value = e.currentTarget.open;
        localStorage.setItem(kept, String(open.value));
      }}
    >
      <summary class="h">
        <b>{visible(w.label || w.id)}</b>
        <a href={href(`/views`)} class="n">
          {visible(w.module)}
        </a>
      </summary>
      {open.value && <Frame module={w.module} kind="widget" id={w.id} title={`Widget ${w.id} of ${w.module}`} min={80} />}
    </details>
  );
}
