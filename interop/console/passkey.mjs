// Confirms decisions in the web console with a passkey of Chromium's virtual authenticator, and
// prints one JSON object with what it saw. It is started by passkey_test.go with:
// node passkey.mjs URL LINK APPROVAL CODE_FILE PICTURES
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [url, link, approval, codeFile, pictures] = process.argv.slice(2);
const base = url.replace("127.0.0.1", "localhost");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const executablePath = ["/usr/lib/chromium/chromium", "/opt/google/chrome/chrome"].find((p) => existsSync(p));
/** Asks the test for something, and waits until it is done. */
async function ask(what) {
  const file = `${codeFile}.${what}`;
  process.stdout.write(`${what}\n`);
  for (let i = 0; i < 1200 && !existsSync(file); i++) await new Promise((r) => setTimeout(r, 50));
  return readFileSync(file, "utf8").trim();
}
const seen = { violations: [], errors: [], axe: [] };
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
await context.addInitScript(() => addEventListener("securitypolicyviolation", (e) => console.log(`violation ${e.violatedDirective} ${e.blockedURI}`)));
const page = await context.newPage();
page.on("console", (m) => m.text().startsWith("violation ") && seen.violations.push(m.text()));
page.on("pageerror", (e) => seen.errors.push(e.message));
const devtools = await context.newCDPSession(page);
await devtools.send("WebAuthn.enable");
const options = { protocol: "ctap2", transport: "internal", hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true };
const { authenticatorId } = await devtools.send("WebAuthn.addVirtualAuthenticator", { options });
await page.goto(link);
await page.locator("main h1").first().waitFor();

// The first passkey is added with the code from the terminal.
await page.goto(`${base}/console/access`);
await page.getByLabel("Name of a new passkey").fill("laptop");
await page.getByRole("button", { name: "Add a passkey" }).click();
await page.getByLabel("Six digits").waitFor(); // the code exists once the server has asked for it
await page.getByLabel("Six digits").fill(await ask("code"));
await page.getByRole("button", { name: "Confirm", exact: true }).click();
await page.getByRole("list", { name: "Passkeys" }).getByText("laptop").waitFor();
seen.added = true;
if (pictures) await page.screenshot({ path: `${pictures}/access.png` });

// From now on it is the passkey that confirms.
await page.goto(`${base}/console/approvals/${approval}`);
await page.getByText("Everything that was asked").waitFor();
await page.keyboard.press("Shift+A");
await page.getByText("from now on without asking").waitFor();
await page.keyboard.press("Enter");
await page.getByRole("button", { name: "Use the passkey" }).waitFor();
seen.digits = await page.getByLabel("Six digits").count();
for (const theme of ["light", "dark"]) {
  await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
  const { result } = await devtools.send("Runtime.evaluate", {
    expression: `${axe};axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => v.id + " " + v.nodes[0].target.join(" "))))`,
    awaitPromise: true,
    returnByValue: true,
  });
  for (const finding of JSON.parse(result.value)) seen.axe.push(`${theme}: ${finding}`);
  if (pictures) await page.screenshot({ path: `${pictures}/passkey-${theme}.png` });
}
// Another authenticator, such as one that an agent brings along, has no key for it.
await devtools.send("WebAuthn.setAutomaticPresenceSimulation", { authenticatorId, enabled: false });
const { credentials } = await devtools.send("WebAuthn.getCredentials", { authenticatorId });
seen.credentials = credentials.length;
await devtools.send("WebAuthn.removeVirtualAuthenticator", { authenticatorId });
const other = await devtools.send("WebAuthn.addVirtualAuthenticator", { options });
await page.getByRole("button", { name: "Use the passkey" }).click();
seen.refused = await page.locator("dialog [role=alert]").textContent();
await ask("pending");
// The key of the person confirms.
for (const credential of credentials) await devtools.send("WebAuthn.addCredential", { authenticatorId: other.authenticatorId, credential });
await page.getByRole("button", { name: "Use the passkey" }).click();
await page.locator("dialog[open]").waitFor({ state: "detached" }); // it has the same words
await page.getByText("(always)").waitFor();
seen.approved = true;

// A lost passkey is removed at the terminal, and the code confirms again.
await ask("remove");
await page.goto(`${base}/console/access`);
await page.getByText("No passkey was added.").waitFor();
await page.getByLabel("Name of a new agent token").fill("x");
await page.getByRole("button", { name: "Create an agent token" }).click();
await page.getByLabel("Six digits").waitFor();
seen.codeAgain = true;
await browser.close();
process.stdout.write(JSON.stringify(seen));
