import { get, post, remove } from "./api";
import { scriptURL } from "./feed";
import { go } from "./route";

/** A browser that receives notifications, as the server lists it. */
export interface Browser {
  id: string;
  name: string;
  created: string;
}

export interface Listed {
  public_key: string;
  subscriptions: Browser[];
}

export const listPath = "/api/v1/console/push";
const script = "/console/push.js";

/** Why this browser cannot receive notifications, or "". */
export function unavailable(): string {
  if (!isSecureContext) {
    return "Browsers allow notifications on https and on localhost only. Open the console by https, or on the machine of the server by the link of “junctor console”.";
  }
  if (!("serviceWorker" in navigator) || !("PushManager" in window) || !("Notification" in window)) {
    return "This browser does not offer notifications of closed pages here. Safari on an iPhone or iPad offers them to pages on the home screen only; private windows often do not.";
  }
  if (Notification.permission === "denied") {
    return "This browser blocks notifications of the console. Allow them in its settings for this site, and load the page again.";
  }
  return "";
}

const worker = () => navigator.serviceWorker.getRegistration("/console/");

async function subscription(): Promise<PushSubscription | null> {
  if (!("serviceWorker" in navigator)) return null;
  return (await (await worker())?.pushManager?.getSubscription()) ?? null;
}

/** The id by which the server lists this browser, or "" if it does not receive notifications. */
export async function ownId(): Promise<string> {
  const s = await subscription();
  if (!s) return "";
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(s.endpoint)));
  return `psh_${Array.from(sum.slice(0, 12), (b) => b.toString(16).padStart(2, "0")).join("")}`;
}

/** A name by which a person tells browsers apart, such as "Firefox on Linux". */
function browserName(): string {
  const ua = navigator.userAgent;
  const first = (names: [RegExp, string][]) => names.find(([is]) => is.test(ua))?.[1];
  const browser = first([[/Edg/, "Edge"], [/OPR\//, "Opera"], [/Firefox\//, "Firefox"], [/Chrom/, "Chrome"], [/Safari\//, "Safari"]]);
  const system = first([[/Android/, "Android"], [/iPhone/, "iPhone"], [/iPad/, "iPad"], [/Windows/, "Windows"], [/Mac OS/, "Mac"], [/Linux/, "Linux"]]);
  return `${browser ?? "Browser"} on ${system ?? "another system"}`;
}

async function send(s: PushSubscription): Promise<void> {
  const { endpoint, keys } = s.toJSON();
  await post(listPath, { name: browserName(), endpoint, keys });
}

/** Asks for the permission of the person and subscribes this browser. */
export async function switchOn(): Promise<void> {
  if ((await Notification.requestPermission()) !== "granted") throw new Error(unavailable() || "Notifications were not allowed.");
  const { public_key } = await get<Listed>(listPath);
  // The browser updates a worker that it has; to register it again can hang while it runs.
  if (!(await worker())) await navigator.serviceWorker.register(scriptURL(script) as string, { scope: "/console/" });
  const registration = await navigator.serviceWorker.ready;
  await (await registration.pushManager.getSubscription())?.unsubscribe(); // of a former key
  const s = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: public_key });
  try {
    await send(s);
  } catch (e) {
    await s.unsubscribe();
    throw e;
  }
}

/** Ends notifications in this browser. The server learns of it too, unless the session has ended. */
export async function switchOff(): Promise<void> {
  const id = await ownId();
  await (await subscription())?.unsubscribe();
  if (id) await remove(`${listPath}/${id}`);
}

/** Ends notifications in this browser after a sign-out, with which the server has removed them. */
export async function signedOut(): Promise<void> {
  await (await subscription())?.unsubscribe();
}

/** Ties the subscription of this browser to the session that has begun. One that was removed
 * elsewhere, or belongs to another person, ends here. */
export async function renew(): Promise<void> {
  const s = await subscription();
  if (!s) return;
  const id = await ownId();
  const { subscriptions } = await get<Listed>(listPath, true);
  if (subscriptions.some((one) => one.id === id)) await send(s);
  else await s.unsubscribe();
}

/** Opens the page that a clicked notification names. */
export function followClicks(): void {
  navigator.serviceWorker?.addEventListener("message", (e) => {
    if (e.data?.kind === "open" && typeof e.data.path === "string" && e.data.path.startsWith("/")) go(e.data.path);
  });
}
