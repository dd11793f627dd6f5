// Signs people in to the web console in a real Chromium, with an OpenID provider, and prints one
// JSON object with what it saw. It is started by tools/idp with: node signin.mjs URL PROVIDER PICTURES
import { launch, serious } from "./browser.mjs";

const [url, provider, pictures] = process.argv.slice(2);
const base = url.replace("127.0.0.1", "localhost");
const seen = { violations: [], errors: [], axe: [] };

const browser = await launch();
/** A browser of its own, with a page. */
async function open() {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  await context.addInitScript(() => addEventListener("securitypolicyviolation", (e) => console.log(`violation ${e.violatedDirective} ${e.blockedURI}`)));
  const page = await context.newPage();
  page.on("console", (m) => m.text().startsWith("violation ") && seen.violations.push(`${new URL(page.url()).pathname}: ${m.text()}`));
  page.on("pageerror", (e) => seen.errors.push(`${new URL(page.url()).pathname}: ${e.message}`));
  return { context, page };
}
const button = (page) => page.getByRole("button", { name: `Sign in with ${provider}` });
/** Begins a sign-in and ends it at the provider's page. */
async function signIn(page, user, path = "/") {
  await page.goto(`${base}/console${path}`);
  await button(page).click();
  await page.getByLabel("Username:").fill(user);
  await page.getByLabel("Password:").fill("secret");
  await page.getByRole("button", { name: "Login" }).click();
}
const status = async (page) => {
  const line = page.locator(".gate [role=status]");
  await line.waitFor();
  return line.textContent();
};

const ann = await open();
await ann.page.goto(`${base}/console/approvals`);
await button(ann.page).waitFor();
for (const theme of ["light", "dark"]) {
  await ann.page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
  for (const finding of await serious(ann.page)) seen.axe.push(`${theme}: ${finding}`);
  if (pictures) await ann.page.screenshot({ path: `${pictures}/signin-${theme}.png` });
}
await ann.page.setViewportSize({ width: 320, height: 700 });
seen.wide = await ann.page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
await ann.page.setViewportSize({ width: 1280, height: 800 });

let answer = "";
ann.page.on("request", (r) => {
  if (r.url().startsWith(`${base}/console/oidc?`)) answer = r.url();
});
await signIn(ann.page, "ann", "/approvals");
await ann.page.getByRole("heading", { name: "Approvals", level: 1 }).waitFor();
seen.address = new URL(ann.page.url()).pathname + new URL(ann.page.url()).search;
seen.principal = await ann.page.locator("header .opt .live").textContent();
seen.keptInPage = await ann.page.evaluate(() => sessionStorage.getItem("junctor.login") !== null);
const second = await ann.context.newPage();
await second.goto(`${base}/console/audit`);
await second.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
seen.secondTab = true;
await second.reload();
await second.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
seen.reloaded = true;
await second.close();
await ann.page.getByRole("button", { name: "Sign out" }).click();
await ann.page.getByText("You are signed out here and at the sign-in provider.").waitFor();
await button(ann.page).waitFor();
seen.signedOut = new URL(ann.page.url()).search === "";

// The provider's answer is good for one tab, once.
const other = await open();
await other.page.goto(answer);
seen.other = await status(other.page);
await ann.page.goto(answer);
seen.again = await status(ann.page);
await ann.page.goto(`${base}/console/`);
await button(ann.page).click();
await ann.page.getByLabel("Username:").waitFor();
await ann.page.goto(`${base}/console/oidc?code=x&state=changed`);
seen.changed = await status(ann.page);

// People whom the rules do not admit are shown why.
for (const name of ["bob", "cleo"]) {
  const { page } = await open();
  await signIn(page, name);
  await page.getByText("To go on:").waitFor();
  seen[name] = await status(page);
  if (pictures) await page.screenshot({ path: `${pictures}/signin-${name}.png` });
}

await browser.close();
process.stdout.write(JSON.stringify(seen));
