import { signal } from "@preact/signals";
import { keep, secret } from "./api";

/** One event of the server's feed. */
export interface FeedEvent {
  type: string;
  data: any;
}

/** When the feed was last known to be alive; 0 before the first sign of life. */
export const alive = signal(0);
/** The server answers. Data that was shown before stays on the page while it does not. */
export const connected = signal(true);

type Listener = (e: FeedEvent) => void;
const listeners = new Set<Listener>();

export function listen(f: Listener): () => void {
  listeners.add(f);
  return () => listeners.delete(f);
}

let port: MessagePort | null = null;
const shared = document.querySelector<HTMLMetaElement>("meta[name=junctor-worker]")!.content;
const scripts = [shared, "/console/push.js"];
let policy: any;

/** The URL of one of our workers, in the form that the policy of the page requires. */
export function scriptURL(url: string): string | URL {
  const types = (window as any).trustedTypes;
  policy ??= types?.createPolicy("junctor", {
    createScriptURL(u: string) {
      if (!scripts.includes(u)) throw new TypeError("not our worker");
      return u;
    },
  });
  return policy ? policy.createScriptURL(url) : url;
}

function receive(m: any): void {
  switch (m.kind) {
    case "secret":
      if (m.secret && !secret.value) keep(m.secret);
      break;
    case "ended":
      keep("");
      break;
    case "alive":
      alive.value = Date.now();
      connected.value = true;
      break;
    case "down":
      connected.value = false;
      break;
    case "event":
      alive.value = Date.now();
      for (const f of listeners) f(m.event);
  }
}

/** Connects this tab with the worker that all tabs share: it holds the one feed and hands the
 * session to new tabs. Resolves once the worker has told whether it knows a session. */
export function connect(): Promise<void> {
  return new Promise((resolve) => {
    try {
      const worker = new SharedWorker(scriptURL(shared), { type: "module", name: "junctor" });
      port = worker.port;
    } catch {
      resolve(); // without a shared worker each tab polls
      return;
    }
    const timer = setTimeout(resolve, 1000);
    port.onmessage = (e) => {
      receive(e.data);
      if (e.data.kind === "secret") {
        clearTimeout(timer);
        resolve();
      }
    };
    port.start();
    port.postMessage({ kind: "hello", secret: secret.value });
    addEventListener("pagehide", () => port?.postMessage({ kind: "bye" }));
  });
}

/** Tells the worker about a sign-in or a sign-out. */
export function share(): void {
  port?.postMessage({ kind: "session", secret: secret.value });
}
