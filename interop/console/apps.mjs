// Opens the pages of MCP servers' tools in the console and prints one JSON object with what it saw. It is
// started by apps_test.go with: node apps.mjs URL LINK
// The variable ADMIN_TOKEN is the token of an admin, who sees the codes that confirm decisions.
import { confirm, launch } from "./browser.mjs";

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
await page.frameLocator("iframe").getByText(/^done /).waitFor({ timeout: 60_000 });
seen.hostile = JSON.parse((await page.frameLocator("iframe").locator("#out").textContent()).slice(5));
seen.asks = await page.getByText("It asks to connect to").textContent();
seen.pages = context.pages().length;
seen.url = page.url();

// What the page declares is allowed by the person, who sees all of it.
await page.getByRole("button", { name: "Allow while it is open" }).click();
seen.allowed = await confirm(page, url);
await page.getByText("It may connect to").waitFor();
await browser.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
