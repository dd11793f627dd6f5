// What the scripts of this folder share: the browser, and the code that confirms a decision.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

/** Starts the browser of this machine. Its pages wait long, for a busy machine; if a script fails, it prints what they show. */
export async function launch(options = {}) {
  const executablePath = ["/usr/lib/chromium/chromium", "/opt/google/chrome/chrome"].find((p) => existsSync(p));
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"], ...options });
  const newContext = browser.newContext.bind(browser);
  browser.newContext = async (o) => {
    const context = await newContext(o);
    context.setDefaultTimeout(120_000);
    return context;
  };
  process.once("uncaughtException", async (e) => {
    console.error(e);
    for (const page of browser.contexts().flatMap((c) => c.pages())) {
      console.error(page.url(), await page.locator("body").innerText({ timeout: 5000 }).catch(String));
    }
    process.exit(1);
  });
  return browser;
}

/** The serious findings of accessibility on a page. The page's policy forbids scripts of others, so it runs as a debugger. */
export async function serious(page) {
  const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  const devtools = await page.context().newCDPSession(page);
  const { result } = await devtools.send("Runtime.evaluate", {
    expression: `${axe};axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => v.id + " " + v.nodes[0].target.join(" "))))`,
    awaitPromise: true,
    returnByValue: true,
  });
  return JSON.parse(result.value);
}

/** Returns a function that asks the Go test for something on the output, and waits for its answer in a file that begins with codeFile. */
export const asker = (codeFile) => async (what) => {
  const file = `${codeFile}.${what.replaceAll(/[^a-z]/g, "_")}`;
  process.stdout.write(`${what}\n`);
  for (let i = 0; i < 1200 && !existsSync(file); i++) await new Promise((r) => setTimeout(r, 50));
  return readFileSync(file, "utf8").trim();
};

/** Confirms the decision whose dialog is open with its code, which the token in ADMIN_TOKEN may read, and returns what the dialog asked. */
export async function confirm(page, url) {
  await page.getByLabel("Six digits").waitFor();
  const what = await page.locator("dialog h1").textContent();
  const open = await (await fetch(`${url}/api/v1/console/verifications`, { headers: { Authorization: `Bearer ${process.env.ADMIN_TOKEN}` } })).json();
  await page.getByLabel("Six digits").fill(open.verifications.at(-1).code);
  await page.keyboard.press("Enter");
  await page.getByLabel("Six digits").waitFor({ state: "detached" });
  return what;
}

/** Presses g and the key of a page until it is open: the two keys belong together within a second, which a busy machine may miss. */
export async function press(page, key, path) {
  for (let n = 0; n < 60 && new URL(page.url()).pathname !== path; n++) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
  }
}
