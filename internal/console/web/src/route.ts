import { signal } from "@preact/signals";

const base = "/console";

/** The path below /console with its query, such as "/approvals/apr_1?x=y". */
export const here = signal(read());

function read(): string {
  return (location.pathname.slice(base.length) || "/") + location.search;
}

export function go(path: string, replace = false): void {
  if (replace) history.replaceState(null, "", base + path);
  else history.pushState(null, "", base + path);
  here.value = read();
  document.querySelector("main")?.scrollTo(0, 0);
}

/** href is the address of a page for links. */
export const href = (path: string) => base + path;

addEventListener("popstate", () => {
  here.value = read();
});

addEventListener("click", (e) => {
  if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  const a = (e.target as Element).closest("a");
  if (!a || a.target || a.origin !== location.origin || !a.pathname.startsWith(base + "/")) return;
  e.preventDefault();
  go(a.pathname.slice(base.length) + a.search);
});
