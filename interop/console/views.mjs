// Opens the views of an endpoint in the console and prints one JSON object with what it saw. It is
// started by views_test.go with: node views.mjs URL LINK ENDPOINT ANSWERS CLOUD
// The variable ADMIN_TOKEN is the token of an admin, who sees the codes that confirm decisions.
import { asker, confirm, launch } from "./browser.mjs";

const [url, link, endpoint, answers, cloud] = process.argv.slice(2);
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

// The endpoint is added on its page, and says what it is.
await page.goto(`${base}/console/providers`);
await page.getByRole("link", { name: "Add a provider" }).click();
await page.getByRole("link", { name: "Endpoint A program" }).click();
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

// Another one is made by a cloud, with the person's token there.
await page.goto(`${base}/console/add/cloud`);
await page.getByLabel("Name").fill("above");
await page.getByLabel("Your token at the cloud").fill("key-at-the-cloud");
await page.getByLabel("Address of the cloud").fill(cloud);
const provisioned = page.waitForRequest((r) => r.url().endsWith("/api/capability-router/connect"));
await page.getByRole("button", { name: "Add it" }).click();
seen.cloud = (await provisioned).postDataJSON();
await confirm(page, url);
await page.getByText("@test/airborne").waitFor();
seen.cloudConnected = await page.getByText("@test/airborne").textContent();
await page.goto(`${base}/console/views/airborne/airborne`);
await page.frameLocator("iframe").getByText("mounted: hello from the cloud").waitFor();

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

// After a click the view asks for a link, which the person refuses, and opens another view of its module.
await page.goto(`${base}/console/views/plain/linked`);
await page.frameLocator("iframe").getByRole("button", { name: "Read more" }).click();
await page.getByRole("link", { name: "Open example.com" }).waitFor();
await page.getByRole("button", { name: "Do not open" }).click();
await page.frameLocator("iframe").getByText("the person did not open the link").waitFor();
await page.frameLocator("iframe").getByRole("button", { name: "Other view" }).click();
await page.frameLocator("iframe").getByText("mounted: hello from the route").waitFor();

// After a restart of the server the views open again, without signing in.
await page.goto(`${base}/console/views/plain/mounted`);
await ask("restart");
await page.reload();
await page.frameLocator("iframe").getByText("mounted: hello from the route").waitFor();
await page.goto(`${base}/console/views/airborne/airborne`);
await page.frameLocator("iframe").getByText("mounted: hello from the cloud").waitFor();

seen.before = [...seen.errors];

// The hostile view reports by its own route what it could do. A route that changes something needs a
// code once; without one the view is refused, and asks no more.
await page.goto(`${base}/console/views/plain/hostile`);
await page.getByLabel("Six digits").waitFor();
seen.asked = await page.locator("dialog").textContent();
await page.getByRole("button", { name: "Decide nothing" }).click();
await page.getByLabel("Six digits").waitFor({ state: "detached" });
await page.getByRole("button", { name: "Reload" }).click();
await page.getByLabel("Six digits").waitFor();
await confirm(page, url);
await page.frameLocator("iframe").getByText("done").waitFor();
seen.url = page.url();
seen.pages = context.pages().length;

// A view that puts another page into its frame is stopped by the page around it.
await page.addInitScript(() => {
  window.stopped = new Promise((done) => addEventListener("securitypolicyviolation", (e) => done(e.effectiveDirective)));
});
await page.goto(`${base}/console/views/plain/leaving`);
seen.left = await page.evaluate(() => window.stopped);
await page.goto(`${base}/console/views/plain/mounted`);
await page.frameLocator("iframe").getByText("mounted: hello from the route").waitFor();

// A page of the module that is opened by its address does not have the console's origin.
const framed = await page.locator("iframe").getAttribute("src");
const tab = await context.newPage();
await tab.goto(`${base}${framed}files/assets/page.html`);
seen.opened = await tab.evaluate(() => document.title);
seen.again = (await tab.goto(`${base}${framed}`)).status();
await browser.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
