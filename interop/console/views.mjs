// Opens the views of an endpoint in the console and prints one JSON object with what it saw. It is
// started by views_test.go with: node views.mjs URL LINK ENDPOINT ANSWERS
// The variable ADMIN_TOKEN is the token of an admin, who sees the codes that confirm decisions.
import { asker, confirm, launch } from "./browser.mjs";

const [url, link, endpoint, answers] = process.argv.slice(2);
const ask = asker(answers);
const base = url.replace("127.0.0.1", "localhost");
const seen = { errors: [] };

const browser = await launch();
const context = await browser.newContext();
const page = await context.newPage();
page.on("console", (m) => process.env.DEBUG && console.error(m.type(), m.text().slice(0, 300)));
page.on("pageerror", (e) => page.frames().length && seen.errors.push(e.message));
await page.goto(link);
await page.locator("nav").waitFor();

// The endpoint is connected on the page Connect, and says what it is.
await page.goto(`${base}/console/connect`);
await page.getByLabel("Or add").selectOption({ label: "Endpoint with modules" });
await page.getByLabel("Name").fill("far");
await page.getByLabel("URL").fill(endpoint);
await page.getByLabel("Its token").fill("token-of-far");
await page.getByLabel("What it is, such as home-machine").fill("home-machine");
const sent = page.waitForRequest((r) => r.url().endsWith("/api/capability-router/connect"));
await page.getByRole("button", { name: "Add it" }).click();
seen.sent = (await sent).postDataJSON();
await confirm(page, url);
await page.getByText("Connected as far").waitFor();
seen.connected = await page.getByText("Connected as far").textContent();

// From the page Views by a click, as a person would.
await page.goto(`${base}/console/views`);
await page.getByRole("link", { name: /Mounted/ }).click();
await page.frameLocator("iframe").getByText("mounted: hello from the route").waitFor();
await page.goto(`${base}/console/views/plain/react`);
await page.frameLocator("iframe").getByText("React says hello from the route").waitFor();
await page.frameLocator("iframe").getByRole("button").click();
await page.frameLocator("iframe").getByText("clicked 1").waitFor();

// A tab of the module is in the side bar, and its widget beside the chat. What is not shown here is listed.
await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Desk" }).click();
await page.frameLocator("iframe").getByText("mounted: hello from the desk").waitFor();
await page.goto(`${base}/console/chat`);
await page.locator("aside .widget", { hasText: "Side" }).frameLocator("iframe").getByText("mounted: hello from the desk").waitFor();
await page.goto(`${base}/console/views`);
await page.getByRole("list", { name: "Widgets" }).waitFor();
seen.slots = await page.getByRole("list", { name: "Widgets" }).locator("li").evaluateAll((rows) => rows.map((r) => `${r.firstElementChild.textContent} ${r.lastElementChild.textContent}`));
await page.goto(`${base}/console/views/plain/needy`);
seen.needs = await page.frameLocator("iframe").getByRole("alert").textContent();

// After a restart of the server the view opens again, without signing in.
await page.goto(`${base}/console/views/plain/mounted`);
await ask("restart");
await page.reload();
await page.frameLocator("iframe").getByText("mounted: hello from the route").waitFor({ timeout: 60_000 });

seen.before = [...seen.errors];

// The hostile view reports by its own route what it could do. A route that changes something needs a
// code once; without one the view is refused, and asks no more.
await page.goto(`${base}/console/views/plain/hostile`);
await page.getByLabel("Six digits").waitFor({ timeout: 60_000 });
seen.asked = await page.locator("dialog").textContent();
await page.getByRole("button", { name: "Decide nothing" }).click();
await page.getByLabel("Six digits").waitFor({ state: "detached" });
await page.getByRole("button", { name: "Reload" }).click();
await page.getByLabel("Six digits").waitFor({ timeout: 60_000 });
await confirm(page, url);
await page.frameLocator("iframe").getByText("done").waitFor({ timeout: 60_000 });
seen.url = page.url();
seen.pages = context.pages().length;

// A page of the module that is opened by its address does not have the console's origin.
const framed = await page.locator("iframe").getAttribute("src");
const tab = await context.newPage();
await tab.goto(`${base}${framed}files/assets/page.html`);
seen.opened = await tab.evaluate(() => document.title);
seen.again = (await tab.goto(`${base}${framed}`)).status();
await browser.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
