import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { getText } from "../api";
import { Act, visible } from "../ui";
import type { Screen } from "./xterm";

/** One event of a recording: seconds since the start without long pauses, its kind, and its data. */
type Event = [at: number, kind: string, data: string];

interface Cast {
  cols: number;
  rows: number;
  events: Event[];
  length: number;
}

const maxEvents = 1 << 20;
const maxSide = 1000;
const maxPause = 2; // seconds; longer pauses are shortened

/** Reads a recording: a header, then one event a line. Lines that cannot be read are left out. */
export function parse(text: string): Cast {
  const lines = text.split("\n");
  let head: Record<string, unknown> = {};
  try {
    head = JSON.parse(lines[0]) ?? {};
  } catch {
    // The sizes below are those of every terminal that we start.
  }
  const side = (n: unknown, usual: number) => (Number.isInteger(n) && (n as number) > 0 && (n as number) <= maxSide ? (n as number) : usual);
  const events: Event[] = [];
  let before = 0;
  let at = 0;
  for (const line of lines.slice(1, maxEvents)) {
    try {
      const [t, kind, data] = JSON.parse(line);
      if (typeof t !== "number" || typeof kind !== "string" || typeof data !== "string") continue;
      at += Math.min(Math.max(t - before, 0), maxPause);
      before = Math.max(t, before);
      events.push([at, kind, data]);
    } catch {
      // The last line of a session that goes on may be half written.
    }
  }
  return { cols: side(head.cols ?? head.width, 120), rows: side(head.rows ?? head.height, 32), events, length: at };
}

const clock = (s: number) => `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")}`;

/** The recordings of the sessions of a task, played in a terminal. */
export function Recordings(p: { sessions: { id: string; name: string }[] }) {
  const chosen = useSignal("");
  const cast = useSignal<Cast | null>(null);
  const at = useSignal(0);
  const playing = useSignal(false);
  const speed = useSignal(1);
  const box = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | null>(null);
  const next = useRef(0); // the first event that the screen does not show
  useEffect(() => () => screen.current?.close(), []);
  const session = p.sessions.find((s) => s.id === chosen.value) ?? p.sessions[p.sessions.length - 1];
  const stop = () => {
    cast.value = null;
    playing.value = false;
  };

  const show = (to: number) => {
    const c = cast.value;
    const s = screen.current;
    if (!c || !s) return;
    if (to < at.peek()) {
      s.write("\x1bc"); // in order with what is not drawn yet
      s.resize(c.cols, c.rows);
      next.current = 0;
    }
    let text = "";
    for (; next.current < c.events.length && c.events[next.current][0] <= to; next.current++) {
      const [, kind, data] = c.events[next.current];
      if (kind === "o") text += data;
      else if (kind === "r") {
        const [cols, rows] = data.split("x").map(Number);
        if (cols > 0 && rows > 0 && cols <= maxSide && rows <= maxSide) {
          s.write(text);
          text = "";
          s.resize(cols, rows);
        }
      }
    }
    s.write(text);
    at.value = to;
    if (to >= c.length) playing.value = false;
  };
  const load = async () => {
    const c = parse(await getText(`/api/coding-agents/${encodeURIComponent(session.id)}/recording`));
    const { open } = await import("./xterm");
    if (!box.current) return;
    screen.current?.close();
    screen.current = open(box.current);
    screen.current.replace("", c.cols, c.rows);
    next.current = 0;
    at.value = 0;
    cast.value = c;
    playing.value = true;
  };
  useEffect(() => {
    if (!playing.value) return;
    let last = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      const c = cast.peek();
      if (c) show(Math.min(at.peek() + ((now - last) / 1000) * speed.peek(), c.length));
      last = now;
    }, 50);
    return () => clearInterval(timer);
  }, [playing.value]);
  const c = cast.value;
  const marks = c?.events.filter((e) => e[1] === "m").slice(0, 200) ?? [];
  return (
    <div class="code">
      <div class="h">
        {p.sessions.length > 1 ? (
          <select aria-label="Session" value={session.id} onChange={(e) => ((chosen.value = e.currentTarget.value), stop())}>
            {p.sessions.map((s) => (
              <option key={s.id} value={s.id}>
                {visible(s.name)}
              </option>
            ))}
          </select>
        ) : (
          <span>{visible(session.name)}</span>
        )}
        <span class="btns">
          {c === null ? (
            <Act do={load}>Play the recording</Act>
          ) : (
            <>
              <button type="button" class="b" onClick={() => (at.value >= c.length && show(0), (playing.value = !playing.value))}>
                {playing.value ? "Pause" : "Play"}
              </button>
              <select aria-label="Speed" value={String(speed.value)} onChange={(e) => (speed.value = Number(e.currentTarget.value))}>
                {[1, 2, 4, 8].map((n) => (
                  <option key={n} value={n}>
                    {n}×
                  </option>
                ))}
              </select>
            </>
          )}
        </span>
      </div>
      {c && (
        <div class="bar">
          <input
            type="range"
            aria-label="Time"
            min="0"
            max={c.length}
            step="0.1"
            value={at.value}
            onInput={(e) => ((playing.value = false), show(Number(e.currentTarget.value)))}
          />
          <span class="m" role="timer">
            {clock(at.value)} of {clock(c.length)}
          </span>
          {marks.length > 0 && (
            <select aria-label="Go to" value="" onChange={(e) => e.currentTarget.value && ((playing.value = false), show(Number(e.currentTarget.value)))}>
              <option value="">States…</option>
              {marks.map(([t, , state], i) => (
                <option key={i} value={t}>
                  {clock(t)} {visible(state)}
                </option>
              ))}
            </select>
          )}
        </div>
      )}
      <div class={`term ${c ? "" : "off"}`} ref={box} />
    </div>
  );
}
