// The first script of a frame. It runs before any code of the view and gives the view one way out:
// a port to the page, which calls routes of the view's own module as the person who looks at it.

for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "RTCDataChannel", "WebTransport"]) {
  delete (globalThis as any)[name];
}

const body = document.body;
const root = document.getElementById("root")!;

function card(text: string): void {
  const div = document.createElement("div");
  div.className = "junctor-card";
  div.setAttribute("role", "alert");
  div.textContent = text;
  root.replaceChildren(div);
}

function connect(): Promise<MessagePort> {
  return new Promise((resolve) => {
    addEventListener("message", function first(e) {
      if (e.source !== parent || e.data?.kind !== "junctor" || !e.ports[0]) return;
      removeEventListener("message", first);
      body.dataset.theme = e.data.theme;
      resolve(e.ports[0]);
    });
  });
}

async function main(): Promise<void> {
  const port = await connect();
  let next = 1;
  const waiting = new Map<number, [(v: unknown) => void, (e: Error) => void]>();
  port.onmessage = (e) => {
    const w = waiting.get(e.data?.id);
    if (!w) return;
    waiting.delete(e.data.id);
    if (e.data.error) w[1](new Error(String(e.data.error)));
    else w[0](e.data.value);
  };
  port.start();
  const request = (kind: string, params: object) =>
    new Promise<any>((ok, fail) => {
      waiting.set(next, [ok, fail]);
      port.postMessage({ id: next++, kind, params });
    });
  const call = (method: string, path: string, payload?: unknown) => request("route.call", { method, path, body: payload });
  const load = (path?: string) => call("GET", path ?? `/${body.dataset.view}`);
  new ResizeObserver(() => port.postMessage({ kind: "resize", params: { height: document.documentElement.scrollHeight } })).observe(document.documentElement);

  let module: any;
  try {
    module = await import(body.dataset.bundle!);
  } catch (e) {
    const missing = /specifier ['"]([^'"]+)['"]/.exec((e as Error).message)?.[1];
    card(missing ? `This view imports ${missing}, which the console does not offer. It offers react, react-dom and react/jsx-runtime.` : `This view cannot be loaded: ${(e as Error).message}`);
    return;
  }
  const name = body.dataset.export;
  const component = (name && module[name]) || module.default || module.mount;
  if (typeof component !== "function") {
    card("This view exports nothing that can be shown.");
    return;
  }
  try {
    if (component === module.mount || component.name === "mount") {
      component(root, { load, call, request, every: 5000 });
      return;
    }
    const react: any = await import("react-at-runtime");
    react.createRoot(root).render(react.createElement(component, { load, call, request, interact: (capability: string, params: unknown) => request("interact", { capability, params }) }));
  } catch (e) {
    card(`This view failed: ${(e as Error).message}`);
  }
}

void main();
