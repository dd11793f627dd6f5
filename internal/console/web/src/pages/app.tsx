import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Failure, call, post } from "../api";
import { Act, Trouble, messageLimit, visible } from "../ui";
import { type Link, LinkAsk, acted, canOpen, hasActed } from "./frames";

/** What a tool declares of its page. */
export interface AppOf {
  resource?: string;
}

interface Ticket {
  url: string;
  ticket: string;
  origins: string[];
  allowed: boolean;
}

const revision = "2026-01-26"; // of MCP Apps
const maxMessage = 256 << 10; // characters of JSON

/** The page that a tool of an MCP server brings along, with the input and the result of one call. The
 * page runs in a frame of its own, and reaches the tools and resources of its server only. */
export function App(p: { tool: string; input: unknown; result: unknown }) {
  const frame = useRef<HTMLIFrameElement>(null);
  const ticket = useSignal<Ticket | null>(null);
  const failed = useSignal<Failure | null>(null);
  const height = useSignal(320);
  const link = useSignal<Link | null>(null);
  const server = p.tool.split("/")[0];
  const open = (allow: boolean) =>
    post<Ticket>("/console/apps", { tool: p.tool, allow }).then(
      (t) => ((failed.value = null), (ticket.value = t)),
      (e) => {
        if (!ticket.value) failed.value = e;
        else throw e;
      },
    );
  useEffect(() => {
    ticket.value = null;
    void open(false);
  }, [p.tool, p.result]);
  useEffect(() => {
    const t = ticket.value;
    if (!t) return;
    const tooMany = messageLimit();
    let ask = true; // until the person has refused to give the code
    const send = (message: object) => frame.current?.contentWindow?.postMessage({ jsonrpc: "2.0", ...message }, "*"); // the frame's origin is opaque
    const receive = async (e: MessageEvent) => {
      if (!frame.current || e.source !== frame.current.contentWindow || e.data?.jsonrpc !== "2.0" || typeof e.data.method !== "string") return;
      const { id, method, params } = e.data;
      const answer = (result: unknown) => id !== undefined && send({ id, result });
      const refuse = (code: number, message: string) => id !== undefined && send({ id, error: { code, message } });
      const excess = tooMany();
      if (excess) return refuse(-32000, excess);
      switch (method) {
        case "ui/initialize":
          return answer({
            protocolVersion: revision,
            hostInfo: { name: "junctor", version: "1" },
            hostCapabilities: { openLinks: {}, serverTools: {}, serverResources: {} },
            hostContext: {
              theme: document.documentElement.dataset.theme === "dark" ? "dark" : "light",
              displayMode: "inline",
              availableDisplayModes: ["inline"],
              containerDimensions: { maxHeight: 4000 },
              locale: navigator.language,
              timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
              platform: "web",
            },
          });
        case "ui/notifications/initialized":
          send({ method: "ui/notifications/tool-input", params: { arguments: p.input ?? {} } });
          send({ method: "ui/notifications/tool-result", params: p.result });
          return;
        case "ui/notifications/size-changed":
          height.value = Math.max(80, Math.min(4000, Number(params?.height) || 320));
          return;
        case "ui/request-display-mode":
          return answer({ mode: "inline" });
        case "ping":
          return answer({});
        case "ui/open-link": {
          const url = String(params?.url ?? "");
          if (!canOpen(url)) return refuse(-32000, "the link cannot be opened");
          if (!(await hasActed(frame.current))) return refuse(-32000, "a link needs a click of the person");
          if (link.value) return refuse(-32000, "the link cannot be opened");
          link.value = {
            url,
            answer(opened) {
              link.value = null;
              if (opened) answer({});
              else refuse(-32000, "the person did not open the link");
            },
          };
          return;
        }
        case "tools/call":
        case "resources/read": {
          const body = { method, name: String(params?.name ?? ""), arguments: params?.arguments, uri: String(params?.uri ?? "") };
          if (JSON.stringify(body).length > maxMessage) return refuse(-32000, "the message is too large");
          try {
            answer(await call("POST", `/console/frames/${t.ticket}/call`, body, !acted(frame.current), ask));
          } catch (err) {
            const { code, reason } = err as Failure;
            if (code === "cancelled") ask = false;
            if (reason === "frame_closed") failed.value = err as Failure;
            refuse(-32000, (err as Error).message);
          }
          return;
        }
      }
      if (id !== undefined) refuse(-32601, `the console does not offer ${method.slice(0, 40)}`);
    };
    addEventListener("message", receive);
    return () => {
      send({ id: "end", method: "ui/resource-teardown", params: {} });
      removeEventListener("message", receive);
    };
  }, [ticket.value]);
  const t = ticket.value;
  if (failed.value) return <Trouble error={failed.value} />;
  if (!t) return null;
  return (
    <div class="code">
      <div class="h">
        <span>Page of {visible(server)}</span>
        {t.origins.length > 0 && (
          <span class="btns">
            <span class="who">
              {t.allowed ? "It may connect to" : "It asks to connect to"} {visible(t.origins.join(", "))}
            </span>
            {!t.allowed && <Act do={() => open(true)}>Allow while it is open</Act>}
          </span>
        )}
      </div>
      {link.value && <LinkAsk link={link.value} />}
      <iframe
        key={t.ticket}
        ref={frame}
        class="frame"
        title={`Page of ${p.tool}`}
        sandbox="allow-scripts"
        referrerpolicy="no-referrer"
        src={t.url}
        style={{ height: `${height.value}px` }}
      />
    </div>
  );
}
