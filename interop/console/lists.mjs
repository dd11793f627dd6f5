// Measures the lists that grow with an installation: the first row, a filter, and scrolling through 10,000 rows at most,
// as the page has them. It prints a JSON object for each list. It is started by lists_test.go with: node lists.mjs LINK
import { launch } from "./browser.mjs";

const [link] = process.argv.slice(2);
const base = new URL(link).origin;
const browser = await launch();
const context = await browser.newContext();
const page = await context.newPage();
await page.goto(link);
await page.locator("nav").waitFor();

// The time when all rows that are shown have a text, by the clock of the page.
const until = (text, click = "") => page.evaluate(([want, click]) => new Promise((done) => {
  performance.clearResourceTimings();
  const began = performance.now();
  if (click) document.querySelector(click).click();
  const look = () => {
    const rows = [...document.querySelectorAll(".virtual .row")];
    if (rows.length && rows.every((r) => r.textContent.includes(want))) done({ began, at: performance.now() });
    else requestAnimationFrame(look);
  };
  look();
}), [text, click]);

for (const { list, path, api, field, typed, enter, want } of [
  { list: "tools", path: "/catalog", api: "/api/v1/tools", field: "Search", typed: "TOOL_1999", want: "TOOL_1999" },
  { list: "nodes", path: "/nodes", api: "/api/v1/nodes", field: "Id", typed: "node-0019", want: "node-0019" },
  { list: "records", path: "/audit", api: "/api/v1/audit", field: "Who", typed: "agent:rare", enter: true, want: "agent:rare" },
]) {
  const seen = { list, largest: 0, total: 0 };
  const measure = async (r) => {
    const { length } = await r.body().catch(() => ""); // the page may be left meanwhile
    seen.largest = Math.max(seen.largest, length);
  };
  page.on("response", measure);
  await page.goto(`${base}/console/notifications`); // a page that asks for little
  await page.locator("main h1").waitFor();
  const first = await until("", `nav a[href='/console${path}']`);
  seen.row = first.at - first.began;
  const total = page.locator(".bar .n");
  if (await total.count()) seen.total = Number.parseInt((await total.textContent()).replaceAll(/[^0-9]/g, ""));
  const found = until(want);
  await page.getByLabel(field, { exact: true }).fill(typed);
  if (enter) await page.keyboard.press("Enter");
  const { at } = await found;
  seen.filter = await page.evaluate(([at, api, typed]) => {
    const request = performance.getEntriesByType("resource").find((r) => r.name.includes(api) && decodeURIComponent(r.name).includes(typed));
    return at - request.startTime;
  }, [at, api, typed]);
  seen.matches = await page.locator(".virtual .row").count();
  await page.getByLabel(field, { exact: true }).fill("");
  if (enter) await page.keyboard.press("Enter");
  const more = page.getByRole("button", { name: "Show more" });
  await more.waitFor();
  const shown = async () => Number.parseInt(await page.locator(".btns .n").textContent());
  for (seen.shown = await shown(); seen.shown < 10_000 && (await more.isVisible()); ) {
    const before = seen.shown;
    await more.click();
    await page.waitForFunction((b) => !document.querySelector(".btns .n")?.textContent.startsWith(`${b}`), before);
    seen.shown = (await more.isVisible()) ? await shown() : seen.total || before + 1;
  }
  seen.longest = await page.evaluate(async () => {
    let longest = 0;
    new PerformanceObserver((l) => l.getEntries().forEach((e) => (longest = Math.max(longest, e.duration)))).observe({ entryTypes: ["longtask"] });
    const box = document.querySelector(".virtual");
    for (let top = 0; top < box.scrollHeight; top += Math.max(400, box.scrollHeight / 200)) {
      box.scrollTop = top;
      await new Promise(requestAnimationFrame);
    }
    return longest;
  });
  page.off("response", measure);
  process.stdout.write(`${JSON.stringify(seen)}\n`);
}
await browser.close();
