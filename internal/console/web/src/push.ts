// The worker that receives notifications while the console is closed. It shows each, because
// browsers require that, and opens the console when a person clicks one. It decides nothing.

const worker = self as any;

/** The page that a notice leads to. Only pages of the console are built from it. */
function pathOf(kind: unknown, id: unknown): string {
  if (typeof id !== "string" || !/^[A-Za-z0-9_-]{1,80}$/.test(id)) return "/";
  if (kind === "approval") return `/approvals/${id}`;
  if (kind === "task") return `/tasks/${id}`;
  return "/";
}

worker.addEventListener("install", () => worker.skipWaiting());

worker.addEventListener("push", (e: any) => {
  let n: any = {};
  try {
    n = e.data?.json() ?? {};
  } catch {
    // Not a notice of this server; the browser requires a notification all the same.
  }
  const path = pathOf(n.kind, n.id);
  e.waitUntil(
    worker.registration.showNotification(String(n.title ?? "junctor").slice(0, 100), {
      body: String(n.text ?? "Something waits in the console.").slice(0, 400),
      tag: path, // a later notice about the same approval or task replaces this one
      renotify: true,
      data: path,
    }),
  );
});

worker.addEventListener("notificationclick", (e: any) => {
  e.notification.close();
  const path = String(e.notification.data ?? "/");
  e.waitUntil(
    (async () => {
      const all: any[] = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
      const page = all.find((c) => c.frameType === "top-level" && new URL(c.url).pathname.startsWith("/console/"));
      if (!page) return worker.clients.openWindow(`/console${path}`);
      page.postMessage({ kind: "open", path });
      return page.focus();
    })(),
  );
});
