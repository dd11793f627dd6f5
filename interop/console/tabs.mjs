// Opens twelve tabs of the console, three of them with a live terminal, and a thirteenth by its address.
// It prints one JSON object with what it saw. It is started by tabs_test.go with: node tabs.mjs LINK THREAD
import { launch } from "./browser.mjs";

const [link, thread] = process.argv.slice(2);
const base = new URL(link).origin;
const browser = await launch();
const context = await browser.newContext();
const seen = { live: 0, watching: 0, badges: 0 };

const first = await context.newPage();
await first.goto(link);
await first.locator("nav").waitFor();
const tabs = [first];
for (const path of ["/approvals", "/tasks", "/catalog", "/providers", "/nodes", "/audit", "/usage", "/system", `/tasks/${thread}`, `/tasks/${thread}`, `/tasks/${thread}`, "/access"]) {
  const tab = await context.newPage();
  await tab.goto(`${base}/console${path}`);
  await tab.locator("main h1").first().waitFor();
  tabs.push(tab);
}
for (const tab of tabs) {
  await tab.getByText("live", { exact: true }).waitFor();
  seen.live++;
  if (tab.url().includes(thread)) {
    await tab.getByText("you are watching").waitFor();
    seen.watching++;
  }
}
// An approval that is asked now reaches every tab by the one feed.
process.stdout.write("ask\n");
for (const tab of tabs) {
  await tab.locator("nav .n.wait").first().waitFor();
  seen.badges++;
}
process.stdout.write(`${JSON.stringify(seen)}\n`);
await new Promise((done) => process.stdin.once("data", done)); // until the feeds are counted
await browser.close();
process.exit(0);
