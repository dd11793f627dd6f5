// Drives the web console in a real Chromium and prints one JSON object with what it saw.
// It is started by console_test.go with: node console.mjs URL LINK APPROVAL AGENT_TOKEN CODE_FILE FINISHED_THREAD PAUSED_THREAD EXTENSION
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { asker, launch, press, serious } from "./browser.mjs";

const [url, link, approval, agentToken, codeFile, finished, paused, extension] = process.argv.slice(2);
const base = url.replace("127.0.0.1", "localhost");
const ask = asker(codeFile);
// The code exists once its dialog is open.
const prove = async (what) => {
  await page.getByLabel("Six digits").waitFor();
  await page.getByLabel("Six digits").fill(await ask(what));
};

const seen = { violations: [], errors: [], axe: [], wide: [], low: [], notes: {} };

const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
await context.addInitScript(() => addEventListener("securitypolicyviolation", (e) => console.log(`violation ${e.violatedDirective} ${e.blockedURI}`)));
const watch = (page) => {
  page.on("console", (m) => m.text().startsWith("violation ") && seen.violations.push(`${new URL(page.url()).pathname}: ${m.text()}`));
  page.on("pageerror", (e) => seen.errors.push(`${new URL(page.url()).pathname}: ${e.message}`));
};

const page = await context.newPage();
watch(page);

// Without a session every page says how to sign in.
await page.goto(`${base}/console/approvals`);
await page.getByText("junctor console", { exact: true }).waitFor();

await page.goto(link);
await page.getByRole("heading", { name: "Now", level: 1 }).or(page.getByRole("heading", { name: "Approvals", level: 1 })).waitFor();
seen.notes.fragment = page.url().includes("#");

// Every page, in both themes: no violation, no serious finding, nothing wider than the window.
for (const path of ["/", "/approvals", `/approvals/${approval}`, "/tasks", "/tasks/new", `/tasks/${finished}`, `/tasks/${paused}`, "/chat", "/catalog", "/catalog/fs.readText", "/catalog/fs.readText/why?agent=x&select=provider%3Dnone", "/connect", "/add", "/add/program", "/add/mcp", "/add/registry", "/add/extension", "/providers", "/nodes", "/audit", "/audit/2", "/access", "/access/signin", "/access/grants", "/access/rules", "/access/secrets", "/notifications", "/system", "/channels", "/usage", "/choices", "/kit"]) {
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.goto(`${base}/console${path}`);
  await page.locator("main h1").first().waitFor();
  if (path === "/kit") await page.getByRole("heading", { name: "Numbers" }).waitFor();
  else await page.waitForFunction(() => !document.querySelector("main")?.textContent?.includes("Loading…"));
  for (const theme of ["light", "dark"]) {
    await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
    for (const finding of await serious(page)) seen.axe.push(`${path} ${theme}: ${finding}`);
  }
  await page.setViewportSize({ width: 320, height: 700 });
  if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) seen.wide.push(path);
  const low = await page.locator("button:visible, a.b:visible").evaluateAll((all) => all.filter((e) => e.getBoundingClientRect().height < 40).map((e) => e.textContent || e.ariaLabel));
  for (const text of low) seen.low.push(`${path}: ${text}`);
}
await page.setViewportSize({ width: 1280, height: 800 });

// On a phone four pages are in a bar, the rest behind More, by keyboard: Escape returns to the button, a page closes the list.
await page.setViewportSize({ width: 320, height: 700 });
await page.goto(`${base}/console/audit`);
const bar = page.getByRole("navigation", { name: "Pages" });
await bar.getByRole("link", { name: "Approvals" }).locator(".n.wait").waitFor();
seen.notes.bar = (await bar.locator("a, button").allInnerTexts()).map((t) => t.replaceAll(/[\d\s]/g, ""));
const more = bar.getByRole("button", { name: "More" });
const sheet = page.getByRole("dialog", { name: "More pages" });
await more.press("Enter");
await sheet.getByRole("link", { name: "Audit" }).waitFor();
for (const theme of ["light", "dark"]) {
  await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
  for (const finding of await serious(page)) seen.axe.push(`more pages ${theme}: ${finding}`);
}
seen.notes.behind = await sheet.getByRole("link").allInnerTexts();
await page.keyboard.press("Escape");
await sheet.waitFor({ state: "detached" });
await page.waitForFunction(() => document.activeElement?.textContent === "More");
await more.press("Enter");
await sheet.getByRole("link", { name: "Providers" }).press("Enter");
await page.getByRole("heading", { name: "Providers", level: 1 }).waitFor();
await sheet.waitFor({ state: "detached" });

// The pinned bar of an approval has two halves, and what lasts longer is not in it.
await page.goto(`${base}/console/approvals/${approval}`);
const [once, deny] = await Promise.all(["Approve once", "Deny"].map((name) => page.locator(".deciding").getByRole("button", { name }).boundingBox()));
seen.notes.halves = [once.width - deny.width, deny.x - once.x - once.width, Math.min(once.height, deny.height), once.y - deny.y].map(Math.round);
const longer = page.getByText("Approve for longer, with any input");
seen.notes.pinned = (await page.locator(".deciding").innerText()).split(/\s*\n\s*/);
await longer.click();
await page.getByRole("button", { name: "Approve always…" }).waitFor();
seen.notes.effect = await page.locator("main .sub b[title]").last().evaluate((e) => `${e.title}: ${e.textContent}`);

// The catalog shows the decisions for an agent, and names it. A phone keeps the effects, in words.
await page.goto(`${base}/console/catalog`);
const tools = page.getByRole("region", { name: "Tools" });
await tools.getByText("changes", { exact: true }).first().waitFor();
seen.notes.for = [await page.getByLabel("Decision for:").inputValue(), await page.locator("main .head span").last().textContent()];
await page.getByLabel("Decision for:").selectOption("");
await page.waitForFunction(() => document.querySelector("main .head span:last-child")?.textContent === "For you");
await tools.locator(".row").first().waitFor();

// A program that is not known gets a token, which is on the page once and nowhere else.
await page.goto(`${base}/console/connect`);
await page.getByLabel("Name of the program").fill("helper");
await page.getByRole("button", { name: "Create a token" }).click();
await prove("code token");
await page.keyboard.press("Enter");
const given = page.getByRole("region", { name: "The new token" });
const made = await given.getByLabel("Token", { exact: true }).textContent();
const used = await fetch(`${url}/api/v1/status`, { headers: { Authorization: `Bearer ${made.trim()}` } });
seen.notes.given = [used.status, await given.getByLabel("Address", { exact: true }).textContent(), (await given.locator("pre").last().textContent()).includes(made.trim())];
for (const finding of await serious(page)) seen.axe.push(`a new token: ${finding}`);
if (process.env.PICTURES) await given.locator("pre").last().scrollIntoViewIfNeeded().then(() => page.screenshot({ path: `${process.env.PICTURES}/token.png` }));
await given.getByRole("button", { name: "Copy: Token" }).click();
await given.getByText(/^(Copied|Selected; press Ctrl C)$/).waitFor();
const kept = await page.evaluate(() => JSON.stringify([location.href, history.state, { ...localStorage }, { ...sessionStorage }]));
await page.reload();
await page.getByLabel("Name of the program").waitFor();
seen.notes.leaked = kept.includes(made.trim()) || (await page.content()).includes(made.trim());

// Tasks are listed in columns, which a phone does not name.
await page.goto(`${base}/console/tasks`);
const task = page.getByRole("list", { name: "Tasks" }).locator("li", { hasText: "sleep 600" });
await task.getByText("your answer").waitFor();
seen.notes.named = await page.locator("main .head").isVisible();
await page.setViewportSize({ width: 1280, height: 800 });
await page.locator("main .head").waitFor();
seen.notes.columns = await page.locator("main .head span").allInnerTexts();
await task.getByText("shell", { exact: true }).waitFor();
seen.notes.cells = (await task.locator(".row > *").allInnerTexts()).slice(0, 4);

// A task is started on the page, after the code, and is then shown.
await page.getByRole("link", { name: "New task" }).click();
await page.getByLabel("What is to be done").fill("echo begun in the console");
seen.notes.chooses = await page.getByRole("button", { name: "Start the task" }).isDisabled();
await page.getByLabel("Program").selectOption("shell");
await page.getByRole("button", { name: "Start the task" }).click();
await page.getByLabel("Six digits").waitFor();
seen.notes.named_shell = await page.locator("dialog[open] h1").textContent();
// The refusal to decide is in sight above the bar of a phone.
await page.setViewportSize({ width: 320, height: 700 });
await page.getByRole("button", { name: "Decide nothing" }).click();
const refusal = await page.locator("main .note.bad").boundingBox();
seen.notes.refused_above = refusal.y >= 0 && refusal.y + refusal.height <= (await page.locator("nav.five").boundingBox()).y;
await page.setViewportSize({ width: 1280, height: 800 });
await page.getByRole("button", { name: "Start the task" }).click();
await prove("code task");
await page.keyboard.press("Enter");
await page.getByRole("heading", { name: "echo begun in the console", level: 1 }).waitFor();
seen.notes.begun = await page.locator("main aside dd", { hasText: "shell" }).textContent();

// What a file declares is marked, and cannot be removed here.
await page.goto(`${base}/console/providers`);
seen.notes.managed = await page.locator("main li", { hasText: "team" }).locator(".who", { hasText: "managed by" }).innerText();
await page.goto(`${base}/console/providers/team`);
await page.getByRole("heading", { name: "team", level: 1 }).waitFor();
seen.notes.fixed = `${(await page.locator("main aside button").allInnerTexts()).join(", ")}; ${await page.locator("main aside dd", { hasText: "change it there" }).innerText()}`;

// An extension is installed from a file, and what it asks for is read before it is enabled.
await page.goto(`${base}/console/providers`);
await page.getByRole("link", { name: "Add a provider" }).click();
await page.getByRole("link", { name: "Extension" }).click();
await page.getByLabel("Package, a zip file").setInputFiles(extension);
await page.getByRole("button", { name: "Install" }).click();
await prove("code install");
await page.keyboard.press("Enter");
await page.getByText("What it asks for").first().waitFor();
seen.notes.consent = await page.locator("main .code pre").first().innerText();
const enable = page.getByRole("button", { name: "Agree and enable" });
seen.notes.blind = (await enable.count()) > 0;
for (const theme of ["light", "dark"]) {
  await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
  for (const finding of await serious(page)) seen.axe.push(`an extension ${theme}: ${finding}`);
}
await page.getByLabel("I have read what it asks for").check();
await enable.click();
await prove("code extension");
await page.keyboard.press("Enter");
await page.getByRole("button", { name: "Disable" }).waitFor();
seen.notes.enabled = true;

// Records beyond the first page are shown, down to the first.
await page.goto(`${base}/console/audit`);
const older = page.getByRole("button", { name: "Show more" });
await older.click();
await older.waitFor({ state: "detached" });
const records = page.getByLabel("Records, newest first");
await records.evaluate((e) => e.scrollTo(0, e.scrollHeight));
await records.locator("a[href$='/audit/1']").waitFor();
seen.notes.first = true;

// A refused call shows the rule of its record, and the page of a tool shows whose call a trial is.
await page.goto(`${base}/console/`);
await page.locator("main li", { hasText: "fs.list" }).getByText("forbidden by").waitFor();
seen.notes.cause = await page.locator("main li", { hasText: "fs.list" }).locator(".clip").first().innerText();
await page.goto(`${base}/console/catalog/fs.writeText`);
seen.notes.runs = await page.locator("main p.hint", { hasText: "Runs as" }).innerText();

// A new tab is signed in without a code; so is a reload.
const second = await context.newPage();
watch(second);
await second.goto(`${base}/console/audit`);
await second.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
await second.reload();
await second.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
seen.notes.secondTab = true;

// An approval, by keyboard only: the whole input is on the page, and a dangerous scope asks for the code.
await page.goto(`${base}/console/`);
await page.getByRole("heading", { name: "Now", level: 1 }).waitFor();
await press(page, "a", "/console/approvals");
await page.locator('[aria-label="Pending approvals"] a').first().waitFor();
await page.keyboard.press("Enter");
await page.getByText("Everything that was asked").waitFor();
await page.getByRole("button", { name: "Compare with the file as it is now" }).click();
await page.locator(".diff .del").waitFor();
seen.notes.change = [await page.locator(".diff .del").allTextContents(), (await page.locator(".diff .add").allTextContents()).map((l) => l.slice(0, 12))].flat();
const whole = page.getByRole("group", { name: "Everything that was asked" });
seen.notes.input = await whole.locator("dd pre").textContent();
seen.notes.keys = await whole.locator("dt").allTextContents();
await page.getByRole("switch", { name: "As JSON" }).press("Space");
await whole.locator("dl").waitFor({ state: "detached" });
seen.notes.json = await whole.locator("pre").textContent();
seen.notes.digest = await page.locator("dt", { hasText: "Digest of the input" }).locator("+ dd").textContent();
seen.notes.script = await page.evaluate(() => Boolean(window.hacked));
await page.keyboard.press("Shift+A");
await page.getByText("from now on without asking").waitFor();
await page.keyboard.press("Enter");
await prove("code");
await page.keyboard.press("Enter");
await page.locator("dialog[open]").waitFor({ state: "detached" }); // it has the same words
await page.getByText("(always)").waitFor();
seen.notes.approved = true;

// A call is found by its id, and why it went to its provider, by keyboard only.
const read = await (
  await fetch(`${url}/api/v1/invocations`, {
    method: "POST",
    headers: { Authorization: `Bearer ${agentToken}`, "Content-Type": "application/json" },
    body: JSON.stringify({ target: "fs.readText", input: { path: "plan.md" } }),
  })
).json();
await page.keyboard.press("Control+k");
await page.locator("dialog.palette input:focus").waitFor();
await page.keyboard.type(read.invocation.id);
await page.keyboard.press("Enter");
await page.getByRole("heading", { name: "called: fs.readText" }).waitFor();
await page.getByRole("link", { name: "Why this provider" }).waitFor();
await page.keyboard.press("w");
await page.getByRole("heading", { name: "Why fs.readText" }).waitFor();
await page.getByRole("list", { name: "Steps of the choice" }).waitFor();
seen.notes.why = await page.locator(".c-funnel .tag.ok").textContent();
await page.getByRole("button", { name: "Choose again now" }).press("Enter");
seen.notes.replayed = await page.locator("main .note[role=status]").textContent();

// Keys of one letter are switched off, and on again. A slash command is begun in the palette, and sent by the person.
for (const acts of [false, true]) {
  await page.keyboard.press("Control+k");
  await page.locator("dialog.palette input:focus").waitFor();
  await page.keyboard.type("keys of one");
  await page.keyboard.press("Enter");
  await page.locator("dialog.palette").waitFor({ state: "detached" });
  if (acts) await press(page, "n", "/console/");
  await page.keyboard.press("g");
  await page.keyboard.press("n");
  if (new URL(page.url()).pathname === "/console/" !== acts) seen.notes.lost = `the keys g n while they are ${acts ? "on" : "off"}`;
}
await page.keyboard.press("Control+k");
await page.locator("dialog.palette input:focus").waitFor();
await page.keyboard.type("/help");
await page.getByRole("option", { name: "/help" }).first().waitFor();
await page.keyboard.press("Enter");
await page.getByLabel("Message").waitFor();
if ((await page.getByLabel("Message").inputValue()) !== "/help ") seen.notes.lost = "the slash command of the palette";

// The work of a task in a checkout is shown, merged and removed; a paused task asks and is answered.
await page.goto(`${base}/console/tasks/${finished}`);
await page.getByRole("button", { name: "Show the changes" }).click();
await page.getByText("The work is on").waitFor();
seen.notes.diff = await page.locator(".code pre[tabindex]").textContent();
await page.getByRole("button", { name: "Merge", exact: true }).click();
await prove("code merge");
await page.getByRole("button", { name: "Confirm" }).click();
await page.getByText("main is at").waitFor();
seen.notes.merged = await page.getByText("main is at").textContent();
await page.getByRole("button", { name: "Discard…" }).click();
await page.getByRole("button", { name: "Remove all work that was not merged" }).click();
await prove("code discard");
await page.getByRole("button", { name: "Confirm" }).click();
await page.getByText("Removed:").waitFor();
seen.notes.discarded = await page.getByText("Removed:").textContent();
// The recording of its session is played to the end, and back to its beginning.
await page.getByRole("button", { name: "Play the recording" }).click();
await page.getByLabel("Time").waitFor();
const recorded = page.locator(".code", { has: page.getByLabel("Time") });
await recorded.locator(".xterm-rows").getByText("written", { exact: true }).waitFor();
await page.getByLabel("Time").press("Home");
await recorded.locator(".xterm-rows").getByText("written", { exact: true }).waitFor({ state: "detached" });
await page.getByLabel("Time").press("End");
await recorded.locator(".xterm-rows").getByText("written", { exact: true }).waitFor();
seen.notes.played = await recorded.getByRole("timer").textContent();
await page.goto(`${base}/console/tasks/${paused}`);
await page.getByText("Is it to go on?").waitFor();
seen.notes.question = await page.getByText("Is it to go on?").textContent();
await page.getByRole("button", { name: "cancel", exact: true }).click();
await page.getByText("Is it to go on?").waitFor({ state: "detached" });
seen.notes.stopped = await page.locator("main .tag").first().textContent();

// What the rules decide about a call of the agent, and which rule it is.
await page.goto(`${base}/console/access`);
await page.getByRole("link", { name: "Rules" }).click();
await page.getByLabel("Tool that would be called").fill("memory.store");
await page.getByRole("button", { name: "Ask the rules" }).click();
seen.notes.may = await page.getByRole("list", { name: "Decisions of the rules" }).locator(".tag").first().textContent();

// A person is paired with a code, and that is confirmed with the code from the terminal.
await page.goto(`${base}/console/channels`);
const account = page.getByRole("region", { name: "webhook:pager" });
await account.getByText("operator:ann").waitFor();
await account.getByRole("button", { name: "Make a pairing code" }).click();
await prove("code pair");
await page.getByRole("button", { name: "Confirm" }).click();
seen.notes.paired = await account.getByRole("status").locator(".m").textContent();
await page.goto(`${base}/console/usage`);
await page.getByRole("list", { name: "Agents" }).locator("a").first().waitFor();

// A pasted file of MCP servers: what would be added, with its credentials by name, and then is.
const memory = createRequire(import.meta.url).resolve("@modelcontextprotocol/server-memory/dist/index.js");
const pasted = { notes: { command: "node", args: [memory], env: { API_TOKEN: "sk-abcdefabcdefabcdef123456" } }, old: { type: "sse", url: "http://far.example/sse" } };
await page.goto(`${base}/console/add/program`);
await page.getByLabel("Paste the MCP servers").fill(JSON.stringify({ mcpServers: pasted }));
await page.getByRole("button", { name: "Show what would be added" }).click();
await page.getByText("its transport is sse").waitFor();
seen.notes.credential = await page.getByText("Credentials become named secrets").textContent();
await page.getByRole("button", { name: "Add it" }).first().click();
await prove("code import");
await page.getByRole("button", { name: "Confirm" }).click();
await page.getByText("Added: notes").waitFor();
seen.notes.imported = (await page.content()).includes("sk-abcdef");

// A server of the registry: its plan, with the value that it asks for.
await page.goto(`${base}/console/add/registry`);
await page.getByLabel("Words").fill("weather");
await page.getByRole("button", { name: "Search", exact: true }).click();
await page.getByRole("list", { name: "Servers of the registry" }).getByRole("button", { name: "Add…" }).click();
await page.getByLabel("X-Region").fill("north");
await page.getByRole("button", { name: "Use these values" }).click();
seen.notes.planned = await page.getByText("https://weather.example/mcp").textContent();

// A call that asks while the page is open appears on it.
await page.goto(`${base}/console/`);
await page.getByRole("heading", { name: "Now", level: 1 }).waitFor();
const call = await fetch(`${url}/api/v1/invocations`, {
  method: "POST",
  headers: { Authorization: `Bearer ${agentToken}`, "Content-Type": "application/json" },
  body: JSON.stringify({ target: "memory.store", input: { text: "made while open", tags: Array.from({ length: 40 }, (_, i) => `the tag ${i} of many`) } }),
});
seen.notes.asked = call.status;
await page.locator("nav a[aria-current=page] .n.wait").waitFor();
seen.notes.badge = true;

// A list that the members show the beginning of is shown as JSON first, to its end.
await page.goto(`${base}/console/approvals/${(await call.json()).error.details.approval}`);
await page.locator("[role=switch]:checked").waitFor();
seen.notes.rest = await whole.locator("pre").textContent();

// The server is killed while every page is open, and started again: each keeps what it showed, and goes on by itself.
const tabs = [];
for (const path of ["/", "/approvals", "/tasks", "/chat", "/catalog", "/connect", "/add", "/providers", "/nodes", "/views", "/audit", "/access", "/system"]) {
  const tab = await context.newPage();
  watch(tab);
  await tab.goto(`${base}/console${path}`);
  await tab.locator("main h1").first().waitFor();
  await tab.waitForFunction(() => !document.querySelector("main").textContent.includes("Loading…"));
  await tab.locator("nav .n.wait").first().waitFor();
  tabs.push({ tab, path, heading: await tab.locator("main h1").first().textContent(), rows: await tab.locator("main .row").count(), waits: await tab.locator("nav .n.wait").allTextContents() });
}
const gone = (tab) => tab.getByText("The server does not answer. What you see");
await ask("kill");
for (const { tab, path, rows } of tabs) {
  await gone(tab).waitFor();
  if ((await tab.locator("main .row").count()) < rows) seen.notes.lost = `${path} while the server is away`;
}
await ask("start");
const began = Date.now();
for (const { tab, path, heading, rows, waits } of tabs) {
  await gone(tab).waitFor({ state: "detached" });
  seen.notes.back ??= Date.now() - began;
  await tab.locator("nav .n.wait").first().waitFor();
  const now = [await tab.locator("main h1").first().textContent(), String(await tab.locator("nav .n.wait").allTextContents())];
  if (now[0] !== heading || now[1] !== String(waits)) seen.notes.lost = `${path} after the restart: ${now}, before ${heading},${waits}`;
  if (path === "/catalog" || path === "/approvals") await tab.waitForFunction((n) => document.querySelectorAll("main .row").length === n, rows);
  await tab.close();
}
seen.notes.survived = true;

// Another server on the same host gets the cookie and cannot use it.
let cookie = "";
const thief = createServer((req, res) => {
  if (req.url === "/") cookie = req.headers.cookie ?? "";
  res.end("hello");
});
await new Promise((done) => thief.listen(0, "127.0.0.1", done));
const tab = await context.newPage();
await tab.goto(`http://localhost:${thief.address().port}/`);
await tab.close();
thief.close();
seen.notes.cookieSeen = cookie.includes("jct_console_");
seen.notes.stolen = [];
for (const path of ["/api/v1/status", "/api/v1/tokens", "/console/session", "/api/v1/audit", "/api/v1/secrets", "/api/v1/events", "/api/v1/approvals", "/api/v1/upstreams", "/api/capability-router/endpoints", "/api/coding-agents"]) {
  for (const method of ["GET", "POST"]) seen.notes.stolen.push((await fetch(url + path, { method, headers: { Cookie: cookie } })).status);
}

await browser.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
