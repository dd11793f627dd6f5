// Opens the pages of MCP servers' tools in the console and prints one JSON object with what it saw. It is
// started by apps_test.go with: node apps.mjs URL LINK
// The variable ADMIN_TOKEN is the token of an admin, who sees the codes that confirm decisions.
import { confirm, launch, serious } from "./browser.mjs";

const [url, link] = process.argv.slice(2);
const base = new URL(link).origin;
const browser = await launch();
const context = await browser.newContext();
const page = await context.newPage();
const seen = {};
await page.goto(link);
await page.locator("nav").waitFor();

// The page of a published server shows the result, and calls its server again.
await page.goto(`${base}/console/catalog/${encodeURIComponent("ext.mcp.clock.get-time")}`);
await page.getByRole("button", { name: "Call it" }).click();
seen.called = await confirm(page, url);
const clock = page.frameLocator("iframe");
await clock.getByText(/20\d\d-\d\d-\d\dT/).first().waitFor();
const first = await clock.getByText(/20\d\d-\d\d-\d\dT/).first().textContent();
await clock.getByRole("button", { name: /get server time/i }).click();
seen.confirmed = await confirm(page, url);
await clock.getByText(/20\d\d-\d\d-\d\dT/).first().waitFor();
for (let i = 0; i < 200; i++) {
  seen.again = (await clock.getByText(/20\d\d-\d\d-\d\dT/).first().textContent()) !== first;
  if (seen.again) break;
  await page.waitForTimeout(50);
}

// A hostile page reports what it could do.
await page.goto(`${base}/console/catalog/${encodeURIComponent("ext.mcp.hostile.show")}`);
await page.getByLabel("Input as JSON").fill('{"text":"x"}');
await page.getByRole("button", { name: "Call it" }).click();
await confirm(page, url);
await confirm(page, url);
await page.frameLocator("iframe").getByText(/^done /).waitFor();
seen.hostile = JSON.parse((await page.frameLocator("iframe").locator("#out").textContent()).slice(5));
seen.asks = await page.getByText("It asks to connect to").textContent();
seen.pages = context.pages().length;
seen.url = page.url();

// The description of its tool is text wherever it is shown, with invisible characters made visible.
seen.texts = [];
const other = await context.newPage();
for (const path of ["/catalog?q=hostile", `/catalog/${encodeURIComponent("ext.mcp.hostile.show")}`, "/providers/hostile", "/audit", "/"]) {
  await other.goto(`${base}/console${path}`);
  await other.locator("main h1").first().waitFor();
  await other.waitForFunction(() => !document.querySelector("main").textContent.includes("Loading…"));
  if (path.includes("atalog")) await other.getByText("gnp.exe").first().waitFor();
  const text = await other.evaluate(() => document.body.textContent);
  if (/[\u202e\u001b]/.test(text) || (await other.evaluate(() => window.hacked || document.querySelector("main img")))) seen.texts.push(path);
}
await other.close();

// What the page declares is allowed by the person, who sees all of it.
await page.getByRole("button", { name: "Allow while it is open" }).click();
seen.allowed = await confirm(page, url);
await page.getByText("It may connect to").waitFor();

// In the chat the agent calls the tool once the person has approved it, and its page is shown there.
await page.goto(`${base}/console/chat/pages`);
await page.getByLabel("Message").fill("PLAY-CLOCK please");
await page.getByLabel("Message").press("Enter");
await page.locator(".deeds").getByRole("link", { name: "Review" }).click();
await page.getByText("Everything that was asked").waitFor();
await page.keyboard.press("a");
await page.getByText("This call runs").waitFor();
await page.keyboard.press("Enter");
await confirm(page, url);
await page.getByText("(once)").waitFor();
await page.goto(`${base}/console/chat/pages`);
await page.getByText("It is that time.").waitFor();
seen.decided = await page.locator(".deeds", { hasText: "was approved" }).locator("p").first().textContent();
const done = page.getByRole("list", { name: "What was done" }).last();
seen.done = await done.getByRole("link").first().textContent();
await done.getByRole("button", { name: "Show its page" }).click();
await done.frameLocator("iframe").getByText(/20\d\d-\d\d-\d\dT/).first().waitFor();
seen.paged = true;
for (const theme of ["light", "dark"]) {
  await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
  for (const finding of await serious(page)) (seen.axe ??= []).push(finding);
}
await browser.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
