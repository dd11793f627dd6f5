// Connects a program of the user in the web console, and approves its first call there, in a real Chromium.
// It prints one JSON object with what it saw. It is started by interop/clis with:
// node connect.mjs URL LINK TITLE CODE_FILE [PICTURES]
import { asker, confirm, launch, press } from "./browser.mjs";

const [url, link, title, codeFile, pictures] = process.argv.slice(2);
const base = url.replace("127.0.0.1", "localhost");
const ask = asker(codeFile);
const seen = { clicks: 0 };

const browser = await launch();
const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
const click = async (of, name) => {
  await of.getByRole("button", { name, exact: true }).click();
  seen.clicks++;
};
const picture = (name) => pictures && page.screenshot({ path: `${pictures}/connect-${name}.png` });

const began = Date.now();
await page.goto(link);
await page.getByRole("heading", { name: "Now", level: 1 }).waitFor();
await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Connect an agent" }).click();
seen.clicks++;
const row = page.locator("main li", { has: page.locator("b", { hasText: new RegExp(`^${title}$`) }) });
await click(row, "Connect…");
seen.difference = await row.locator("pre").textContent();
await picture("difference");
await click(row, "Write it");
seen.written = await confirm(page, url);
await row.getByText("waiting for its first request").waitFor();
await ask("list");
await row.getByText("last request").waitFor();
seen.seconds = Math.round((Date.now() - began) / 1000);
await picture("connected");

// Its first change asks, on whatever page the person is.
await ask("call");
await page.waitForFunction(() => /^\(1\)/.test(document.title));
await press(page, "a", "/console/approvals");
await page.locator('[aria-label="Pending approvals"] a').first().waitFor();
await page.keyboard.press("Enter");
await page.getByText("Everything that was asked").waitFor();
seen.input = await page.getByRole("group", { name: "Everything that was asked" }).locator("dl").textContent();
await picture("approval");
await page.keyboard.press("a");
await page.keyboard.press("Enter");
const asked = page.getByLabel("Six digits");
await asked.or(page.getByText("(once)")).first().waitFor();
if (await asked.isVisible()) seen.confirmed = await confirm(page, url);
await page.getByText("(once)").waitFor();
await ask("called");

// What was done, and on whose word.
await page.getByRole("link", { name: "Audit", exact: true }).click();
await page.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
await page.locator("main a", { hasText: "fs.writeText" }).first().click();
await page.getByRole("heading", { name: "fs.writeText" }).first().waitFor();
await page.waitForFunction(() => /approved by/.test(document.querySelector("main")?.textContent ?? ""));
seen.trail = await page.locator("main").innerText();
await picture("trail");

await page.goto(`${base}/console/connect`);
await click(row, "Undo");
await page.getByText("is as it was before").waitFor();
await row.locator(".tag", { hasText: "found" }).waitFor(); // the page looks again after it has said so
seen.undone = await row.locator(".tag").innerText();
await browser.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
