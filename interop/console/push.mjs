// Drives the notifications of the web console in a real Chromium and prints one JSON object with
// what it saw. It is started by push_test.go with: node push.mjs URL LINK APPROVAL PICTURE
// Chromium has no push service here: a stub makes the subscription, and the messages of one are
// delivered by the DevTools protocol.
import { launch, serious } from "./browser.mjs";

const [url, link, approval, picture] = process.argv.slice(2);
const base = url.replace("127.0.0.1", "localhost");
const seen = { violations: [], errors: [], axe: [], notices: [] };

const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
await context.grantPermissions(["notifications"], { origin: base });
await context.addInitScript(() => {
  addEventListener("securitypolicyviolation", (e) => console.log(`violation ${e.violatedDirective} ${e.blockedURI}`));
  const base64url = (b) => btoa(String.fromCharCode(...new Uint8Array(b))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const load = () => {
    const json = JSON.parse(localStorage.getItem("stub") ?? "null");
    return json && { endpoint: json.endpoint, toJSON: () => json, unsubscribe: async () => (localStorage.removeItem("stub"), true) };
  };
  PushManager.prototype.getSubscription = async () => load();
  PushManager.prototype.subscribe = async (o) => {
    if (!o.userVisibleOnly || atob(o.applicationServerKey.replaceAll("-", "+").replaceAll("_", "/")).length !== 65) throw new Error("bad options");
    const pair = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, false, ["deriveBits"]);
    const p256dh = base64url(await crypto.subtle.exportKey("raw", pair.publicKey));
    const keys = { p256dh, auth: base64url(crypto.getRandomValues(new Uint8Array(16))) };
    localStorage.setItem("stub", JSON.stringify({ endpoint: "https://push.example.org/send/secret", expirationTime: null, keys }));
    return load();
  };
});
const watch = (page) => {
  page.on("console", (m) => m.text().startsWith("violation ") && seen.violations.push(m.text()));
  page.on("pageerror", (e) => seen.errors.push(e.message));
};
const page = await context.newPage();
watch(page);
await page.goto(link);
await page.locator("main h1").first().waitFor();
await page.goto(`${base}/console/notifications`);
const toggle = page.getByRole("switch", { name: "Notify me in this browser" });
await toggle.and(page.locator(":enabled")).waitFor();
seen.before = await toggle.isChecked();

// By keyboard.
await toggle.focus();
await page.keyboard.press("Space");
await page.getByText("this browser", { exact: true }).waitFor();
seen.on = await toggle.isChecked();
await page.screenshot({ path: picture });
await page.setViewportSize({ width: 320, height: 700 });
seen.wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
await page.setViewportSize({ width: 1280, height: 800 });
const devtools = await context.newCDPSession(page);
for (const theme of ["light", "dark"]) {
  await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
  for (const finding of await serious(page)) seen.axe.push(`${theme}: ${finding}`);
}

// The worker shows what a push service delivers, whatever it is, and leads to our pages only.
const registered = new Promise((done) =>
  devtools.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
    const own = registrations.find((r) => r.scopeURL === `${base}/console/`);
    if (own) done(own.registrationId);
  }),
);
await devtools.send("ServiceWorker.enable");
const registrationId = await registered;
const shown = () =>
  page.evaluate(async () => {
    const list = await (await navigator.serviceWorker.getRegistration("/console/")).getNotifications();
    return list.map((n) => ({ title: n.title, body: n.body, path: n.data, actions: n.actions?.length ?? 0 }));
  });
async function deliver(data, title) {
  await devtools.send("ServiceWorker.deliverPushMessage", { origin: base, registrationId, data });
  for (let i = 0; i < 200 && !(await shown()).some((n) => n.title === title); i++) await new Promise((r) => setTimeout(r, 50));
}
const notice = (title) => JSON.stringify({ kind: "approval", id: approval, title, text: "agent:local-agent wants to call fs.writeText (write)" });
await deliver(notice("Approval needed"), "Approval needed");
await deliver("not JSON", "junctor");
await deliver(JSON.stringify({ kind: "task", id: "thr_1/../../evil", title: "x", text: "y" }), "x");
await deliver(notice("Approval still needed"), "Approval still needed"); // replaces the first
seen.notices = await shown();

// A click opens the approval in the page that is open. It decides nothing.
const worker = context.serviceWorkers().find((w) => w.url().endsWith("/console/push.js"));
await worker.evaluate(async (path) => {
  const one = (await self.registration.getNotifications()).find((n) => n.data === path);
  self.dispatchEvent(new NotificationEvent("notificationclick", { notification: one }));
}, `/approvals/${approval}`);
await page.waitForURL(`**/console/approvals/${approval}`);
await page.getByText("Everything that was asked").waitFor();
seen.left = (await shown()).length;

// The switch stays on over a reload. Where notifications cannot be had, the page says why.
await page.goto(`${base}/console/notifications`);
await page.getByText("this browser", { exact: true }).waitFor();
seen.reloaded = await toggle.isChecked();
seen.why = [];
for (const [what, text] of [
  ["Object.defineProperty(Notification, 'permission', { get: () => 'denied' })", "blocks notifications"],
  ["Object.defineProperty(window, 'isSecureContext', { value: false })", "on https and on localhost only"],
  ["delete window.PushManager", "does not offer"],
]) {
  const other = await context.newPage();
  watch(other);
  await other.addInitScript(what);
  await other.goto(`${base}/console/notifications`);
  await other.locator(".note", { hasText: text }).waitFor();
  seen.why.push(text);
  await other.close();
}

// Off and on again by mouse, and the end with the sign-out.
await toggle.click();
await page.getByText("No browser is notified.").waitFor();
seen.off = !(await toggle.isChecked()) && (await page.evaluate(() => localStorage.getItem("stub"))) === null;
await toggle.click();
await page.getByText("this browser", { exact: true }).waitFor();
await page.getByRole("button", { name: "Sign out" }).click();
await page.getByText("This browser is not signed in.").waitFor();
await page.waitForFunction(() => localStorage.getItem("stub") === null);
seen.signedOut = true;

await browser.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
