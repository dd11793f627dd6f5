// Opens twelve tabs of the console, three of them with a live terminal, and a thirteenth by its address.
// It prints one JSON object with what it saw. It is started by tabs_test.go with: node tabs.mjs LINK THREAD LOUD_THREAD SECONDS
import { launch } from "./browser.mjs";

const [link, thread, loud, seconds] = process.argv.slice(2);
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

// One of the watchers takes the terminal over by keyboard: its keys are echoed in all of them, until it gives the terminal back.
const [typist, ...watchers] = tabs.filter((tab) => tab.url().includes(thread));
await typist.bringToFront();
await typist.getByRole("button", { name: "Take over" }).focus();
await typist.keyboard.press("Enter");
await typist.getByText("you are typing").waitFor();
// The time from a key to its echo on the screen, as the page has them.
await typist.evaluate(() => {
  window.echoes = [];
  let at = 0;
  addEventListener("keydown", () => (at = performance.now()), true);
  new MutationObserver(() => {
    if (at) window.echoes.push(performance.now() - at);
    at = 0;
  }).observe(document.querySelector(".xterm-rows"), { childList: true, subtree: true, characterData: true });
});
const keys = "the quick brown fox jumps over it";
for (let i = 0; i < keys.length; i++) {
  await typist.keyboard.press(keys[i] === " " ? "Space" : keys[i]);
  await typist.waitForFunction((n) => window.echoes.length >= n, i + 1);
}
const shows = (tab, text) => tab.waitForFunction((t) => document.querySelector(".xterm-rows").textContent.replaceAll("\u00a0", " ").includes(t), text);
for (const tab of [typist, ...watchers]) await shows(tab, keys);
seen.echo = (await typist.evaluate(() => window.echoes)).sort((a, b) => a - b)[Math.floor(keys.length * 0.95)];
await typist.keyboard.press("Control+]");
await typist.getByText("you are watching").waitFor();
await typist.keyboard.type("lost");
seen.heldBack = !(await typist.locator(".xterm-rows").textContent()).includes("lost");

// A program that writes far more than a browser draws: all watchers end with the same screen, which is its last one.
const [first2, ...others] = await Promise.all([1, 2, 3].map(async () => {
  const tab = await context.newPage();
  await tab.goto(`${base}/console/tasks/${loud}`);
  await tab.getByText("you are watching").waitFor();
  return tab;
}));
await first2.bringToFront();
await first2.getByRole("button", { name: "Take over" }).click();
await first2.keyboard.press("Enter"); // it waits for a line
for (const tab of [first2, ...others]) await tab.waitForFunction(() => document.querySelector(".xterm-rows").textContent.includes("the very end"), null, { timeout: 120_000 + 10_000 * seconds });
seen.screens = await Promise.all([first2, ...others].map((tab) =>
  tab.locator(".xterm-rows > div").evaluateAll((rows) => rows.map((r) => r.textContent.replaceAll("\u00a0", " ").trim()).filter(Boolean).slice(-4).join("|"))));

const devtools = await context.newCDPSession(first2);
await devtools.send("HeapProfiler.collectGarbage");
seen.heap = (await devtools.send("Runtime.getHeapUsage")).usedSize;
process.stdout.write(`${JSON.stringify(seen)}\n`);
await new Promise((done) => process.stdin.once("data", done)); // until the feeds are counted
await browser.close();
process.exit(0);
