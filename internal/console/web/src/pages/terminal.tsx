import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call } from "../api";

type State = "connecting" | "watching" | "typing" | "away" | "ended";

const words: Record<State, string> = {
  connecting: "connecting…",
  watching: "you are watching",
  typing: "you are typing; the coordinator holds back",
  away: "no connection; the agent keeps running",
  ended: "the session has ended",
};

/** The live terminal of one session. Keys go to it only after Take over. */
export function Terminal(p: { session: string }) {
  const box = useRef<HTMLDivElement>(null);
  const state = useSignal<State>("connecting");
  const wrong = useSignal("");
  const control = useRef<(take: boolean) => void>(() => {});
  useEffect(() => {
    let stopped = false;
    let socket: WebSocket | null = null;
    let close = () => {};
    void (async () => {
      const { open } = await import("./xterm");
      if (stopped || !box.current) return;
      const screen = open(box.current);
      const send = (order: Record<string, unknown>) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ ...order, sessionId: p.session }));
      screen.onKeys((data) => {
        if (data === "\x1d") control.current(false); // Ctrl-]
        else if (state.value === "typing") send({ type: "input", data });
      });
      control.current = (take) => {
        if (take) send({ type: "resize", ...screen.size() });
        send({ type: "control", take });
        state.value = take ? "typing" : "watching";
        if (take) screen.focus();
      };
      close = () => {
        if (state.value === "typing") control.current(false);
        screen.close();
      };
      let wait = 500;
      while (!stopped) {
        try {
          const { ticket } = await call<{ ticket: string }>("POST", "/console/tickets");
          await new Promise<void>((done) => {
            socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/coding-agents/console`, ["junctor", `ticket.${ticket}`]);
            socket.onopen = () => {
              wait = 500;
              send({ type: "subscribe" });
              state.value = "watching";
            };
            socket.onmessage = (e) => {
              const m = JSON.parse(e.data);
              if (m.sessionId !== p.session) return;
              if (m.type === "snapshot") screen.replace(m.data, m.cols, m.rows);
              else if (m.type === "output") screen.write(m.data);
              else if (m.type === "error") {
                wrong.value = m.message;
                if (m.code === "not_found") state.value = "ended";
              } else if (m.type === "status" && /^(stopped|exited|ended)$/.test(m.event?.status ?? m.event?.type ?? "")) state.value = "ended";
            };
            socket.onclose = () => done();
          });
        } catch {
          // The server is away; the loop tries again.
        }
        if (stopped || state.peek() === "ended") return;
        state.value = "away";
        await new Promise((r) => setTimeout(r, wait));
        wait = Math.min(wait * 2, 8000);
      }
    })();
    return () => {
      stopped = true;
      close();
      socket?.close();
    };
  }, [p.session]);
  return (
    <div class="code">
      <div class="h">
        <span role="status">{words[state.value]}</span>
        <span class="btns">
          {state.value === "watching" && (
            <button type="button" class="b" onClick={() => control.current(true)}>
              Take over
            </button>
          )}
          {state.value === "typing" && (
            <button type="button" class="b" onClick={() => control.current(false)}>
              Give back <kbd>Ctrl ]</kbd>
            </button>
          )}
        </span>
      </div>
      {wrong.value && <p class="note bad">{wrong.value}</p>}
      <div class={`term ${state.value}`} ref={box} />
    </div>
  );
}
