import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, get } from "./api";
import { connected, listen } from "./feed";
import { href } from "./route";

/** What a page knows of one resource: the last data stays while the server is away. */
export interface Loaded<T> {
  data: T | null;
  error: Failure | null;
  at: number;
  reload(): Promise<void>;
}

/** Loads path, again whenever the feed tells an event that topics match, and every few seconds. */
export function useLoad<T = any>(path: string | null, topics: RegExp = /^$/, everyMs = 15000, read: (path: string, background: boolean) => Promise<T> = get): Loaded<T> {
  const [state, set] = useState<{ path: string | null; data: T | null; error: Failure | null; at: number }>({ path, data: null, error: null, at: 0 });
  const run = useRef<() => Promise<void>>(async () => {});
  useEffect(() => {
    if (!path) return;
    let stopped = false;
    let busy = false;
    let again = false;
    let timer: ReturnType<typeof setTimeout>;
    const load = async (background = false) => {
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      try {
        const data = await read(path, background);
        if (!stopped) set({ path, data, error: null, at: Date.now() });
      } catch (e) {
        const error = e instanceof Failure ? e : new Failure(0, "unavailable", "", "The server does not answer.", "It may be restarting; this page tries again.", {});
        if (!stopped) set((old) => ({ path, data: old.path === path ? old.data : null, error, at: old.at }));
      }
      busy = false;
      if (again && !stopped) {
        again = false;
        void load(background);
      }
    };
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(() => load(true), 150);
    };
    run.current = load;
    void load();
    const off = listen((e) => {
      if (topics.test(e.type) || e.type === "resync") soon();
    });
    const poll = setInterval(() => {
      if (!document.hidden) void load(true);
    }, everyMs);
    const back = connected.subscribe((up) => {
      if (up) soon();
    });
    return () => {
      stopped = true;
      clearTimeout(timer);
      clearInterval(poll);
      off();
      back();
    };
  }, [path]);
  const mine = state.path === path;
  return { data: mine ? state.data : null, error: mine ? state.error : null, at: state.at, reload: () => run.current() };
}

/** Loads the first page of a list, whose filter is done by the server, and further ones by more(). The items are in the member of
 * the answer's that is named, and the next page begins after the answer's next. */
export function usePaged<T>(path: string | null, member: string, cursor: string, filter: URLSearchParams, topics: RegExp, everyMs?: number) {
  const key = String(filter);
  const list = useLoad<any>(path && `${path}?${key}`, topics, everyMs);
  const more = useSignal<{ of: string; items: T[]; next?: string }>({ of: "", items: [] });
  const added = more.value.of === key ? more.value : { items: [], next: list.data?.next as string | undefined };
  return {
    list,
    items: [...((list.data?.[member] ?? []) as T[]), ...added.items],
    next: added.next,
    async more() {
      const q = new URLSearchParams(filter);
      q.set(cursor, added.next!);
      const page = await get(`${path}?${q}`);
      more.value = { of: key, items: [...added.items, ...page[member]], next: page.next };
    },
  };
}

/** A value that follows another once that has been still, so that typing does not ask at each key. */
export function useStill(value: string): string {
  const still = useSignal(value);
  useEffect(() => {
    const timer = setTimeout(() => (still.value = value), 200);
    return () => clearTimeout(timer);
  }, [value]);
  return still.value;
}

/** The end of a list that has more. */
export function More(p: { next?: string; shown: number; total?: number; more: () => Promise<void> }) {
  if (!p.next) return null;
  return (
    <p class="btns">
      <Act do={p.more}>Show more</Act>
      <span class="n">
        {p.shown}
        {p.total !== undefined && ` of ${p.total}`}
      </span>
    </p>
  );
}

/** The three states of a list that has nothing to show yet, and the data otherwise. */
export function Show<T>(p: { of: Loaded<T>; children: (data: T) => ComponentChildren }) {
  const { data, error, at } = p.of;
  if (data === null) {
    return error ? <Trouble error={error} /> : <p class="sub">Loading…</p>;
  }
  return (
    <>
      {error && (
        <p class="note bad" role="status">
          {error.message} Shown is what was known {ago(at)} ago.
        </p>
      )}
      <div class={error ? "stale" : undefined}>{p.children(data)}</div>
    </>
  );
}

/** A failure. One of an action scrolls into view, because a phone may not have its place in sight. */
export function Trouble(p: { error: Failure; acted?: boolean }) {
  const box = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    if (p.acted) box.current?.scrollIntoView({ block: "nearest" });
  }, [p.error]);
  return (
    <p class="note bad" role="alert" ref={box}>
      {p.error.message} {p.error.hint}
    </p>
  );
}

export function Empty(p: { children: ComponentChildren; command?: string }) {
  return (
    <div class="list empty">
      <div>{p.children}</div>
      {p.command && (
        <p>
          <code>{p.command}</code>
        </p>
      )}
    </div>
  );
}

/** The meanings of colour; each is also a word. */
export type Meaning = "wait" | "run" | "bad" | "ok" | "";

export function Tag(p: { is?: Meaning; children: ComponentChildren }) {
  return <span class={`tag ${p.is ?? ""}`}>{p.children}</span>;
}

/** The head of a page. The action is the first thing to do on it; the others are buttons beside it. */
export function Title(p: {
  children: ComponentChildren;
  sub?: ComponentChildren;
  up?: [name: string, path: string];
  action?: [name: string, path: string];
  others?: ComponentChildren;
}) {
  return (
    <>
      {p.up && (
        <p class="up">
          <a href={href(p.up[1])}>← {p.up[0]}</a>
        </p>
      )}
      <div class="titled">
        <h1 tabIndex={-1}>{p.children}</h1>
        {(p.others || p.action) && (
          <span class="btns">
            {p.others}
            {p.action && (
              <a class="b p" href={href(p.action[1])}>
                {p.action[0]}
              </a>
            )}
          </span>
        )}
      </div>
      <p class="sub">{p.sub}</p>
    </>
  );
}

/** The parts of a page as tabs. Each has an address of its own. */
export function Tabs(p: { label: string; at: string; of: { name: string; path: string; n?: number }[] }) {
  const box = useRef<HTMLElement>(null);
  useEffect(
    () => box.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }),
    [p.at, p.of.map((t) => t.n).join()], // a number makes the tabs wider
  );
  return (
    <nav class="tabs" aria-label={p.label} ref={box}>
      {p.of.map((t) => (
        <a key={t.path} href={href(t.path)} aria-current={t.path === p.at ? "page" : undefined}>
          {t.name} {t.n !== undefined && <span class="n">{t.n}</span>}
        </a>
      ))}
    </nav>
  );
}

/** The names of the columns of a list, for people who see it; its rows read the same without them. */
export function Head(p: { of: string; names: string[] }) {
  return (
    <div class={`row ${p.of} head opt`} aria-hidden="true">
      {p.names.map((name) => (
        <span class="clip" key={name}>
          {name}
        </span>
      ))}
    </div>
  );
}

/** Invisible and reordering characters of texts that others wrote are shown as their code. */
export function visible(s: unknown): string {
  return String(s ?? "").replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu,
    (c) => (c === "\r" ? "␍" : `\\u${c.codePointAt(0)!.toString(16).padStart(4, "0")}`),
  );
}

export function ago(t: string | number): string {
  const s = Math.max(0, (Date.now() - (typeof t === "number" ? t : Date.parse(t))) / 1000);
  if (!Number.isFinite(s)) return "";
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

export function Ago(p: { at: string | number }) {
  const tick = useSignal(0);
  useEffect(() => {
    const timer = setInterval(() => tick.value++, 5000);
    return () => clearInterval(timer);
  }, []);
  tick.value;
  const iso = typeof p.at === "number" ? new Date(p.at).toISOString() : p.at;
  return (
    <time class="t" dateTime={iso} title={new Date(iso).toLocaleString()}>
      {ago(p.at)}
    </time>
  );
}

const timeOfDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayOfYear = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** The time of a record: of the day if that is today, with the date otherwise. */
export function When(p: { at: string }) {
  const d = new Date(p.at);
  return (
    <time class="t" dateTime={p.at} title={`${d.toLocaleString()}, ${ago(p.at)} ago`}>
      {d.toDateString() !== new Date().toDateString() && `${dayOfYear.format(d)}, `}
      {timeOfDay.format(d)}
    </time>
  );
}

/** A text that the server cuts at max characters, with an ellipsis after its last whole word if it was cut. */
export function whole(text: string, max: number): string {
  return [...text].length < max ? text : `${text.replace(/\s+\S*$/, "")}…`;
}

/** A button that runs an action once at a time and shows its failure beside it. */
export function Act(p: { children: ComponentChildren; do: () => Promise<unknown>; kind?: string; title?: string; off?: boolean; onFail?: (e: Failure) => void }) {
  const busy = useSignal(false);
  const wrong = useSignal("");
  const said = useRef<HTMLSpanElement>(null);
  useEffect(() => said.current?.scrollIntoView({ block: "nearest" }), [wrong.value]);
  return (
    <>
      <button
        type="button"
        class={`b ${p.kind ?? ""}`}
        title={p.title}
        disabled={busy.value || p.off}
        onClick={async (e) => {
          e.preventDefault();
          e.stopPropagation();
          busy.value = true;
          wrong.value = "";
          try {
            await p.do();
          } catch (err) {
            const f = err as Failure;
            if (p.onFail) p.onFail(f);
            else wrong.value = `${f.message} ${f.hint ?? ""}`;
          }
          busy.value = false;
        }}
      >
        {p.children}
      </button>
      {wrong.value && (
        <span class="who" role="alert" ref={said}>
          {wrong.value}
        </span>
      )}
    </>
  );
}

const phone = matchMedia("(max-width: 760px)");
const narrow = signal(phone.matches);
phone.addEventListener("change", () => (narrow.value = phone.matches));

/** A list that renders the rows in sight only. All rows have the same height. */
export function Virtual<T>(p: { items: T[]; height?: number; row: (item: T, index: number, style: { top: string }) => ComponentChildren; label: string }) {
  const height = p.height ?? (narrow.value ? 56 : 40); // a phone has two lines
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const view = useSignal(720);
  useEffect(() => {
    if (box.current) view.value = box.current.clientHeight || 720;
  }, [p.items.length]);
  const from = Math.max(0, Math.floor(top.value / height) - 6);
  const to = Math.min(p.items.length, Math.ceil((top.value + view.value) / height) + 6);
  return (
    <div class="list virtual" ref={box} role="region" aria-label={p.label} tabIndex={0} onScroll={(e) => (top.value = e.currentTarget.scrollTop)}>
      <div class="pad" style={{ height: `${p.items.length * height}px` }}>
        {p.items.slice(from, to).map((item, i) => p.row(item, from + i, { top: `${(from + i) * height}px` }))}
      </div>
    </div>
  );
}

export const json = (v: unknown) => visible(JSON.stringify(v, null, 2));

const keysOff = "junctor.keys";

/** Whether keys of one letter act. A person who dictates, or types by accident, switches them off. */
export const lettersAct = () => localStorage.getItem(keysOff) !== "off";
export const switchLetters = () => (lettersAct() ? localStorage.setItem(keysOff, "off") : localStorage.removeItem(keysOff));

/** Whether a key is for the page: not for a field or dialog, and no shortcut of the browser. A switch takes no letters. */
export const forThePage = (e: KeyboardEvent) => {
  const t = e.target as HTMLInputElement;
  return !(e.ctrlKey || e.metaKey || e.altKey || (/^(INPUT|TEXTAREA|SELECT)$/.test(t.tagName) && t.type !== "checkbox") || t.isContentEditable || document.querySelector("dialog[open]"));
};

export const count = (n: number, word: string) => `${n} ${word}${n === 1 ? "" : "s"}`;

export function bytes(n: number): string {
  return n < 1024 ? `${n} bytes` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;
}

/** Returns a function that counts the messages of a frame. It returns why a message is refused, or "". */
export function messageLimit(): () => string {
  const most = 50;
  let second = 0;
  let count = 0;
  return () => {
    const now = Math.floor(Date.now() / 1000);
    count = now === second ? count + 1 : 1;
    second = now;
    return count > most ? `more than ${most} messages a second` : "";
  };
}
