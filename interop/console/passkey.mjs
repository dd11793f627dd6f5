// Confirms decisions in the web console with a passkey of Chromium's virtual authenticator, and
// prints one JSON object with what it saw. It is started by passkey_test.go with:
// node passkey.mjs URL LINK APPROVAL CODE_FILE PICTURES
import { asker, launch, serious } from "./browser.mjs";

const [url, link, approval, codeFile, pictures] = process.argv.slice(2);
const base = url.replace("127.0.0.1", "localhost");
const ask = asker(codeFile);
const seen = { violations: [], errors: [], axe: [] };
const browser = await launch();
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
await page.goto(`${base}/console/access/signin`);
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
  for (const finding of await serious(page)) seen.axe.push(`${theme}: ${finding}`);
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
await page.goto(`${base}/console/access/signin`);
await page.getByText("No passkey was added.").waitFor();
await page.getByRole("link", { name: "Tokens" }).click();
await page.getByLabel("Name of a new agent token").fill("x");
await page.getByRole("button", { name: "Create an agent token" }).click();
await page.getByLabel("Six digits").waitFor();
seen.codeAgain = true;
await browser.close();
process.stdout.write(JSON.stringify(seen));
