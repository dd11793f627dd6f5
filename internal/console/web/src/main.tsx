import { useSignal, effect, signal } from "@preact/signals";
import { type ComponentChildren, type ComponentType, h, render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { call, Failure, keep, me, secret, verification } from "./api";
import { alive, connect, connected, share } from "./feed";
import { followClicks, renew, signedOut } from "./notify";
import { sign } from "./passkey";
import { providerOf, upstreamKinds } from "./provider";
import { go, here, href } from "./route";
import { ago, forThePage, lettersAct, switchLetters, useLoad, visible } from "./ui";
import { Approvals, ApprovalPage } from "./pages/approvals";
import { Audit, AuditRecord } from "./pages/audit";
import { Catalog, CatalogEntry } from "./pages/catalog";
import { Connect } from "./pages/connect";
import { Now } from "./pages/now";
import { ExtensionPage } from "./pages/extension";
import { ProviderPage, Providers } from "./pages/providers";
import { ExplanationPage, WhyPage } from "./pages/explain";
import { Chat } from "./pages/chat";
import { NodePage, Nodes } from "./pages/nodes";
import { System } from "./pages/system";
import { TaskPage, Tasks } from "./pages/tasks";
import { tabPath, useContributed } from "./pages/frames";
import { ViewPage, Views } from "./pages/views";

const pages: { path: string; name: string; group?: string; key?: string }[] = [
  { path: "/", name: "Now", key: "n" },
  { path: "/approvals", name: "Approvals", key: "a" },
  { path: "/tasks", name: "Tasks", key: "t" },
  { path: "/chat", name: "Chat", key: "c" },
  { path: "/catalog", name: "Catalog", group: "What agents can use", key: "l" },
  { path: "/providers", name: "Providers", key: "p" },
  { path: "/nodes", name: "Nodes" },
  { path: "/views", name: "Views", key: "v" },
  { path: "/connect", name: "Connect an agent", group: "Who uses it" },
  { path: "/channels", name: "Channels", key: "h" },
  { path: "/access", name: "Access" },
  { path: "/audit", name: "Audit", group: "Control", key: "u" },
  { path: "/usage", name: "Usage" },
  { path: "/notifications", name: "Notifications" },
  { path: "/system", name: "System", key: "s" },
];

/** The pages that a phone has in its bar, with their icons; the rest is behind More. */
const inBar: Record<string, string> = {
  "/": "M3 12h4l3-7 4 14 3-7h4",
  "/approvals": "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M8 12l3 3 5-6",
  "/tasks": "M4 6h16M4 12h16M4 18h10",
  "/chat": "M4 5h16v11H9l-5 4z",
};

const phone = matchMedia("(max-width: 760px)");
const narrow = signal(phone.matches);
phone.addEventListener("change", () => (narrow.value = phone.matches));

const theme = () => document.documentElement.dataset.theme ?? "light";

function applyTheme(value: string): void {
  document.documentElement.dataset.theme = value;
}

applyTheme(localStorage.getItem("junctor.theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

/** A page that is opened rarely; its code is loaded with it. Each needs a key, because the next page may be one too. */
function Later(p: { load: () => Promise<ComponentType> }) {
  const page = useSignal<ComponentType | null>(null);
  const failed = useSignal(false);
  const load = () =>
    p.load().then(
      (c) => (page.value = c),
      () => (failed.value = true),
    );
  useEffect(() => void load(), []);
  if (page.value) return h(page.value, {});
  if (!failed.value) return <p class="sub">Loading…</p>;
  return (
    <p class="note bad" role="alert">
      The page was not loaded: the server does not answer, or has another version since. Load the console again.
    </p>
  );
}

function Page() {
  const [, first = "", second = "", third = ""] = here.value.split("?")[0].split("/").map(decodeURIComponent);
  switch (first) {
    case "":
      return <Now />;
    case "approvals":
      return second ? <ApprovalPage id={second} key={second} /> : <Approvals />;
    case "tasks":
      if (second === "new") return <Later key={first} load={() => import("./pages/newtask").then((m) => m.NewTask)} />;
      return second ? <TaskPage id={second} /> : <Tasks />;
    case "chat":
      return <Chat session={second} key={second} />;
    case "catalog":
      if (third === "why") return <WhyPage action={second} key={here.value} />;
      return second ? <CatalogEntry action={second} key={second} /> : <Catalog />;
    case "choices":
      return <Later key={first} load={() => import("./pages/choices").then((m) => m.Choices)} />;
    case "kit":
      return <Later key={first} load={() => import("./pages/kit").then((m) => m.Kit)} />;
    case "explain":
      return <ExplanationPage id={second} />;
    case "add":
      return <Later key={first} load={() => import("./pages/add").then((m) => m.Add)} />;
    case "connect":
      return <Connect />;
    case "providers":
      if (second === "extensions" && third) return <ExtensionPage id={third} key={third} />;
      return second ? <ProviderPage name={second} /> : <Providers />;
    case "nodes":
      return second ? <NodePage id={second} /> : <Nodes />;
    case "channels":
      return <Later key={first} load={() => import("./pages/channels").then((m) => m.Channels)} />;
    case "usage":
      return <Later key={first} load={() => import("./pages/usage").then((m) => m.Usage)} />;
    case "views":
      return third ? <ViewPage module={second} id={third} kind="view" key={here.value} /> : <Views />;
    case "tabs":
      return <ViewPage module={second} id={third} kind="tab" key={here.value} />;
    case "audit":
      return second ? <AuditRecord seq={second} key={second} /> : <Audit />;
    case "access":
      return <Later key={first} load={() => import("./pages/access").then((m) => m.Access)} />;
    case "notifications":
      return <Later key={first} load={() => import("./pages/notifications").then((m) => m.Notifications)} />;
    case "system":
      return <System />;
  }
  return (
    <>
      <h1>This page does not exist</h1>
      <p class="sub">
        <a href={href("/")}>Go to Now</a>
      </p>
    </>
  );
}

function changeTheme(): void {
  const next = theme() === "dark" ? "light" : "dark";
  localStorage.setItem("junctor.theme", next);
  applyTheme(next);
}

async function signOut(): Promise<void> {
  // undefined: the session had no provider, or has ended
  const end = await call<{ url: string } | undefined>("DELETE", "/console/session").catch(() => undefined);
  keep("");
  share();
  void signedOut().catch(() => {}); // the browser may have lost the subscription
  if (!end?.url) return;
  sessionStorage.setItem(leaving, new URL(end.url).searchParams.get("state") ?? "");
  location.assign(end.url);
}

// commands are in the palette beside the pages.
const commands: { label: string; kind: string; path: string; do?: () => void }[] = [
  { label: "New task for a coding agent", kind: "page", path: "/tasks/new" },
  { label: "Add a provider: MCP server, API, agent, endpoint, device or extension", kind: "page", path: "/add" },
  { label: "Keys of one letter on or off", kind: "command", path: "+", do: switchLetters },
  { label: "Light or dark theme", kind: "command", path: "", do: changeTheme },
  { label: "Sign out", kind: "command", path: "-", do: () => void signOut() },
];

/** Where an id leads. */
function jump(text: string): string | null {
  if (/^(apr|cnf)_/.test(text)) return `/approvals/${text}`;
  if (/^run_/.test(text)) return `/audit/${text}`;
  if (/^exp_/.test(text)) return `/explain/${text}`;
  if (/^thr_/.test(text)) return `/tasks/${text}`;
  if (/^\d+$/.test(text)) return `/audit/${text}`;
  return null;
}

function Palette(p: { close: () => void }) {
  const box = useRef<HTMLDialogElement>(null);
  const text = useSignal("");
  const at = useSignal(0);
  useEffect(() => box.current?.showModal(), []);
  const q = text.value.trim().toLowerCase();
  const tools = useLoad<{ tools: any[] }>(q.length > 1 ? `/api/v1/tools?limit=40&q=${encodeURIComponent(q)}` : null, /^$/, 600000);
  const slashes = useLoad<{ commands: any[] }>(q.startsWith("/") ? "/api/v1/chat/slash-commands?enabled_only=true" : null, /^$/, 600000);
  const chat = here.value.startsWith("/chat/") ? here.value.split("?")[0] : "/chat"; // the conversation that is open
  const id = jump(text.value.trim());
  const items: { label: string; kind: string; path: string; do?: () => void }[] = [];
  if (id) items.push({ label: text.value.trim(), kind: "go to id", path: id });
  for (const page of pages) if (page.name.toLowerCase().includes(q)) items.push({ label: page.name, kind: "page", path: page.path });
  for (const c of commands) if (c.label.toLowerCase().includes(q)) items.push(c);
  if (q.startsWith("/")) for (const c of slashes.data?.commands ?? []) {
    if (c.name.startsWith(q.split(" ")[0])) items.push({ label: visible(c.name), kind: visible(c.summary), path: `${chat}?text=${encodeURIComponent(`${c.name} `)}` });
  }
  if (q) for (const t of tools.data?.tools ?? []) {
    items.push({ label: visible(t.tool), kind: providerOf(t.provider).join(" "), path: `/catalog/${encodeURIComponent(t.tool)}` });
  }
  const open = (i: number) => {
    if (items[i]?.do) items[i].do();
    else if (items[i]) go(items[i].path);
    p.close();
  };
  return (
    <dialog ref={box} class="palette" aria-label="Go to" onClose={p.close}>
      <input
        aria-label="Page, tool or id"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-items"
        placeholder="Page, tool or id"
        value={text.value}
        onInput={(e) => {
          text.value = e.currentTarget.value;
          at.value = 0;
        }}
        onKeyDown={(e) => {
          if (e.key === "ArrowDown") at.value = Math.min(at.value + 1, items.length - 1);
          else if (e.key === "ArrowUp") at.value = Math.max(at.value - 1, 0);
          else if (e.key === "Enter") open(at.value);
          else return;
          e.preventDefault();
        }}
      />
      <ul id="palette-items" role="listbox" aria-label="Matches">
        {items.map((item, i) => (
          <li key={item.kind + item.path} role="option" aria-selected={i === at.value} onClick={() => open(i)}>
            <span class="clip">{item.label}</span>
            <span class="n">{item.kind}</span>
          </li>
        ))}
      </ul>
    </dialog>
  );
}

function ProofDialog() {
  const box = useRef<HTMLDialogElement>(null);
  const digits = useSignal("");
  const v = verification.value!;
  const wrong = useSignal(v.wrong);
  useEffect(() => box.current?.showModal(), []);
  const confirm = () =>
    v.options
      ? sign(v.options).then(v.answer, (e: Error) => (wrong.value = e.message || "The passkey was not used."))
      : v.answer(digits.value.trim());
  return (
    <dialog ref={box} aria-labelledby="code-title" onCancel={() => v.answer(null)}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void confirm();
        }}
      >
        <h1 id="code-title">Confirm: {visible(v.what)}</h1>
        {v.options ? (
          <p class="sub">Your passkey confirms it. An agent that controls this browser cannot touch it.</p>
        ) : (
          <p class="sub">Type the code that junctor printed on its terminal. “junctor console code” shows it too. An agent that controls this browser cannot read it.</p>
        )}
        {wrong.value && (
          <p class="note bad" role="alert">
            {visible(wrong.value)}
          </p>
        )}
        {!v.options && (
          <label class="field">
            Six digits
            <input inputMode="numeric" autocomplete="off" maxLength={6} value={digits.value} onInput={(e) => (digits.value = e.currentTarget.value)} />
          </label>
        )}
        <div class="btns">
          <button class="b p" type="submit">
            {v.options ? "Use the passkey" : "Confirm"}
          </button>
          <button class="b" type="button" onClick={() => v.answer(null)}>
            Decide nothing
          </button>
        </div>
      </form>
    </dialog>
  );
}

function Live() {
  const tick = useSignal(0);
  useEffect(() => {
    const t = setInterval(() => tick.value++, 1000);
    return () => clearInterval(t);
  }, []);
  tick.value;
  const up = connected.value;
  return (
    <div class="live" role="status">
      <i class={`dot ${up ? "" : "off"}`} aria-hidden="true" />
      <span>{up ? "live" : "no connection"}</span>
      {alive.value > 0 && !up && <span>{ago(alive.value)} old</span>}
    </div>
  );
}

function Icon(p: { path: string }) {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <path d={p.path} />
    </svg>
  );
}

/** The pages that the bar of a phone has no room for, over the page. */
function Sheet(p: { close: () => void; account: ComponentChildren; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => box.current?.showModal(), []);
  return (
    <dialog
      ref={box}
      class="sheet"
      aria-label="More pages"
      onClose={p.close}
      onClick={(e) => {
        if (e.target === box.current || (e.target as Element).closest("a")) box.current?.close(); // what is beside it is the dialog's too
      }}
    >
      <div class="pages">
        <span class="opt">
          {p.account}
          <button type="button" class="plain" autofocus onClick={() => box.current?.close()}>
            Close
          </button>
        </span>
        {p.children}
      </div>
    </dialog>
  );
}

const maxTabs = 20;

function Shell(p: { who: string }) {
  const palette = useSignal(false);
  const attention = useLoad<{ approvals: number; total: number }>("/api/v1/attention", /^(approval|confirmation|grant|task|agent|upstream|catalog)\./);
  const tabs = useContributed("nav").slice(0, maxTabs); // the page Views lists all
  const waiting = attention.data?.total ?? 0;
  const path = here.value.split("?")[0];
  const at = path.replace(/^\/(choices|explain)(?=\/|$)/, "/catalog").replace(/^\/add(?=\/|$)/, "/providers"); // their pages
  const current = pages.findLast((x) => x.path === "/" ? at === "/" : at === x.path || at.startsWith(`${x.path}/`));
  const more = useSignal(false);
  const upstreams = useLoad<{ upstreams: any[] }>("/api/v1/upstreams", /^upstream\./, 60000);
  useEffect(() => {
    upstreamKinds.value = Object.fromEntries((upstreams.data?.upstreams ?? []).map((u) => [u.name, u.kind]));
  }, [upstreams.data]);
  useEffect(() => document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest" }), [current?.path]);
  useEffect(() => {
    document.title = `${waiting ? `(${waiting}) ` : ""}${current?.name ?? "junctor"} · junctor`;
  }, [waiting, current?.name]);
  useEffect(() => {
    let g = 0;
    const on = (e: KeyboardEvent) => {
      if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") {
        e.preventDefault();
        palette.value = true;
        return;
      }
      if (!forThePage(e) || !lettersAct()) return;
      if (e.key === "w" && Date.now() - g >= 1000) {
        document.querySelector<HTMLAnchorElement>("main a[data-why]")?.click();
      } else if (e.key === "g") {
        g = Date.now();
      } else if (Date.now() - g < 1000) {
        const page = pages.find((x) => x.key === e.key);
        g = 0;
        if (page) {
          e.preventDefault();
          e.stopImmediatePropagation();
          go(page.path);
        }
      }
    };
    addEventListener("keydown", on, true);
    return () => removeEventListener("keydown", on, true);
  }, []);
  const account = () => (
    <>
      <button type="button" class="plain" onClick={changeTheme}>
        Theme
      </button>
      <span class="live">{visible(p.who)}</span>
      <button type="button" class="plain" onClick={() => void signOut()}>
        Sign out
      </button>
    </>
  );
  const link = (x: (typeof pages)[number], icon?: string) => (
    <a key={x.path} href={href(x.path)} aria-current={x === current ? "page" : undefined} title={x.key ? `g ${x.key}` : undefined}>
      {icon && <Icon path={icon} />}
      {x.name}
      {x.path === "/" && waiting > 0 && <span class="n wait">{waiting}</span>}
      {x.path === "/approvals" && (attention.data?.approvals ?? 0) > 0 && <span class="n wait">{attention.data?.approvals}</span>}
    </a>
  );
  const links = (list: typeof pages) => (
    <>
      {list.map((x) => (
        <>
          {x.group && <h2>{x.group}</h2>}
          {link(x)}
        </>
      ))}
      {tabs.length > 0 && <h2>Of endpoints</h2>}
      {tabs.map((t) => (
        <a key={tabPath(t)} href={href(tabPath(t))} aria-current={path === tabPath(t) ? "page" : undefined} title={`From ${visible(t.module)}`}>
          <span class="clip">{visible(t.label || t.id)}</span>
        </a>
      ))}
    </>
  );
  return (
    <div class="app">
      <header class="top">
        <a class="skip" href="#main">
          Skip to the content
        </a>
        <a class="brand" href={href("/")}>
          junctor
        </a>
        <button type="button" class="search" onClick={() => (palette.value = true)}>
          <span>Go to page, tool or id</span>
          <kbd>Ctrl K</kbd>
        </button>
        <div class="grow" />
        <Live />
        <span class="opt">{account()}</span>
      </header>
      {narrow.value ? (
        <nav aria-label="Pages" class="five">
          {pages.filter((x) => inBar[x.path]).map((x) => link(x, inBar[x.path]))}
          <button type="button" aria-haspopup="dialog" aria-expanded={more.value} aria-current={current && inBar[current.path] ? undefined : "true"} onClick={() => (more.value = true)}>
            <Icon path="M5 12h.01M12 12h.01M19 12h.01" />
            More
          </button>
        </nav>
      ) : (
        <nav aria-label="Pages" class="pages">
          {links(pages)}
        </nav>
      )}
      {more.value && narrow.value && (
        <Sheet close={() => (more.value = false)} account={account()}>
          {links(pages.filter((x) => !inBar[x.path]))}
        </Sheet>
      )}
      <main id="main">
        {!connected.value && (
          <p class="note bad" role="alert">
            The server does not answer. What you see is from before; the page goes on by itself when it is back.
          </p>
        )}
        <Page />
      </main>
      {palette.value && <Palette close={() => (palette.value = false)} />}
      {verification.value && <ProofDialog key={verification.value.wrong} />}
    </div>
  );
}

function Gate(p: { why: string }) {
  const provider = useSignal("");
  const why = useSignal(p.why);
  useEffect(() => {
    call<{ provider: string }>("GET", "/console/login").then(
      (l) => (provider.value = l.provider),
      () => {}, // a link always works
    );
  }, []);
  const signIn = async () => {
    try {
      const begun = await call<{ url: string; login: string }>("POST", "/console/login");
      sessionStorage.setItem(login, begun.login);
      location.assign(begun.url);
    } catch (e) {
      why.value = sentences(e as Failure);
    }
  };
  return (
    <div class="gate">
      <h1>junctor</h1>
      <p role="status">{visible(why.value) || "This browser is not signed in."}</p>
      {provider.value && (
        <p>
          <button class="b p" type="button" onClick={() => void signIn()}>
            Sign in with {visible(provider.value)}
          </button>
        </p>
      )}
      <p>{provider.value ? "Or run" : "Run"} this at a terminal of the machine, and open the link that it prints:</p>
      <div class="code">
        <pre>junctor console</pre>
      </div>
      <p class="sub">The link works once, for five minutes. You come back to this page.</p>
    </div>
  );
}

function App(p: { why: string }) {
  const who = useSignal("");
  const checked = useSignal(false);
  useEffect(
    () =>
      effect(() => {
        if (!secret.value) {
          checked.value = true;
          return;
        }
        call("GET", "/console/session").then(
          (s) => {
            who.value = s.principal;
            me.value = { principal: s.principal, id: s.id };
            checked.value = true;
            void renew().catch(() => {}); // the next sign-in tries again
          },
          (e) => {
            if (!(e instanceof Failure)) setTimeout(() => (secret.value = secret.value), 1000);
            checked.value = true;
          },
        );
      }),
    [],
  );
  if (!secret.value) return <Gate why={p.why} />;
  return checked.value ? <Shell who={who.value} /> : null;
}

const wanted = "junctor.wanted";
const leaving = "junctor.leaving"; // the state of a sign-out at the provider
const login = "junctor.login"; // what the server gave this tab for its return from the provider

const sentences = (e: Failure) => (e.hint ? `${e.message}. To go on: ${e.hint}.` : e.message);

/** Ends the sign-in of a tab that the provider has sent back. It returns why that failed, or "". */
async function comeBack(): Promise<string> {
  const answer = new URLSearchParams(location.search);
  const kept = sessionStorage.getItem(login);
  const back = sessionStorage.getItem(wanted);
  sessionStorage.removeItem(login);
  sessionStorage.removeItem(wanted);
  go(back ?? "/", true); // the code is not to stay in the address
  keep("");
  const body: Record<string, string> = { login: kept ?? "none" };
  for (const name of ["code", "state", "iss", "error"]) body[name] = answer.get(name) ?? "";
  try {
    keep((await call("POST", "/console/session", body)).secret);
    return "";
  } catch (e) {
    return sentences(e as Failure);
  }
}

async function main(): Promise<void> {
  if (location.hostname === "127.0.0.1") {
    // Sign-ins belong to the name localhost.
    location.replace(location.href.replace("//127.0.0.1", "//localhost"));
    return;
  }
  let why = "";
  const code = /[#&]c=([0-9a-f]+)/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    keep("");
    try {
      keep((await call("POST", "/console/session", { code })).secret);
      const back = sessionStorage.getItem(wanted);
      sessionStorage.removeItem(wanted);
      if (back && here.value === "/") go(back, true);
    } catch (e) {
      why = (e as Failure).message;
    }
  }
  if (location.pathname === href("/oidc")) why = await comeBack();
  if (location.pathname === href("/signed-out")) {
    const state = new URLSearchParams(location.search).get("state");
    if (state && state === sessionStorage.getItem(leaving)) why = "You are signed out here and at the sign-in provider.";
    sessionStorage.removeItem(leaving);
    go("/", true);
  }
  followClicks();
  await connect();
  if (secret.value) share();
  else sessionStorage.setItem(wanted, here.value);
  render(<App why={why} />, document.getElementById("app")!);
}

void main();
