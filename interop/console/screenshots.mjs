// Makes the screenshots of the documentation: node screenshots.mjs JUNCTOR OUT. It starts a server
// with real MCP servers in a temporary folder, lets an agent ask for something, and looks.
import { spawn, execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "./browser.mjs";

const [junctor, out] = process.argv.slice(2).map((p) => resolve(p));
const packages = resolve(dirname(fileURLToPath(import.meta.url)), "../node_modules/@modelcontextprotocol");
const root = mkdtempSync(join(tmpdir(), "demo-"));
const home = join(root, "home");
const notes = join(root, "notes");
mkdirSync(notes);
// As root the programs run as a user of their own, who has to reach the folder.
chmodSync(root, 0o755);
chmodSync(notes, 0o777);
writeFileSync(join(notes, "plan.md"), "## This week\n- ask about the key\n## Later\n");
chmodSync(join(notes, "plan.md"), 0o666);

const server = spawn(junctor, ["serve", "--home", home, "--listen", "127.0.0.1:0"], { env: { ...process.env, JUNCTOR_APPROVALS_WAIT: "0s" }, stdio: ["ignore", "pipe", "ignore"] });
const url = await new Promise((done) => server.stdout.once("data", (d) => done(JSON.parse(d).url)));
const run = (...args) => execFileSync(junctor, ["--home", home, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
try {
  run("mcp", "add", "files", "--rw", notes, "--ro", dirname(packages), "--trust-hints", "--", "node", join(packages, "server-filesystem/dist/index.js"), notes);
  run("mcp", "add", "memory", "--ro", dirname(packages), "--", "node", join(packages, "server-memory/dist/index.js"));
  run("policy", "deny", "files/move_file");
  const admin = readFileSync(join(home, "run/admin.token"), "utf8").trim();
  const token = JSON.parse(run("tokens", "create", "--role", "agent", "--name", "claude", "--json")).token;
  const call = (name, args) =>
    fetch(`${url}/api/v1/invocations`, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: JSON.stringify({ target: name, input: args }),
    });
  await call("ext.mcp.files.read_text_file", { path: join(notes, "plan.md") });
  await call("ext.mcp.files.list_directory", { path: notes });
  await call("ext.mcp.files.move_file", { source: join(notes, "plan.md"), destination: join(notes, "old.md") });
  await call("ext.mcp.files.write_file", {
    path: join(notes, "plan.md"),
    content: "## This week\n- rotate the deployment key (Tuesday)\n- move the nightly job to the new host\n- delete the old bucket after the backup\n\n## Later\n",
  });
  await call("ext.mcp.memory.create_entities", { entities: [{ name: "deployment key", entityType: "secret", observations: ["rotated every quarter"] }] });

  const browser = await launch();
  const page = await browser.newPage({ viewport: { width: 1280, height: 720 }, reducedMotion: "reduce" });
  const look = async (path, name, theme, to = out) => {
    await page.goto(`${url.replace("127.0.0.1", "localhost")}/console${path}`);
    await page.locator("main h1").first().waitFor();
    await page.waitForFunction(() => !document.querySelector("main").textContent.includes("Loading…"));
    await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
    await page.screenshot({ path: join(to, `${name}.png`) });
  };
  await page.goto(run("console").trim());
  await page.locator("nav").waitFor();
  const { approvals } = JSON.parse(run("approvals", "list", "--json"));
  const write = approvals.find((a) => a.capability.includes("write_file"));
  mkdirSync(out, { recursive: true });
  await look("/", "console-now", "light");
  await look(`/approvals/${write.id}`, "console-approval", "dark");
  // With PICTURES, every page in both themes at three widths, to be looked at.
  if (process.env.PICTURES) {
    mkdirSync(process.env.PICTURES, { recursive: true });
    run("tasks", "create", "ls -l; sleep 600", "--agent", "shell", "--scratch");
    const [thread] = await (await fetch(`${url}/api/coding-agents/coordinator/threads`, { headers: { Authorization: `Bearer ${admin}` } })).json();
    const records = await (await fetch(`${url}/api/v1/audit?limit=1`, { headers: { Authorization: `Bearer ${admin}` } })).json();
    // What follows a page's own name, such as the id of a record, has no place in the name of its picture.
    const nameOf = (path) => path.replace(/(?<=^\/(approvals|tasks|audit)\/)(?!new$).+/, "one").replaceAll(/%2F/g, "-").replaceAll(/[^a-z_]+/gi, "-") || "-";
    for (const path of ["/", "/approvals", `/approvals/${write.id}`, "/tasks", "/tasks/new", `/tasks/${thread.id}`, "/chat", "/catalog", "/catalog/files%2Fwrite_file", "/catalog/files%2Fwrite_file/why", "/choices", "/connect", "/add", "/add/mcp", "/add/extension", "/providers", "/providers/files", "/nodes", "/channels", "/views", "/audit", `/audit/${records.records[0]?.seq ?? 1}`, "/usage", "/access", "/access/signin", "/access/grants", "/access/rules", "/access/secrets", "/notifications", "/system"]) {
      for (const [width, height] of [[320, 700], [1024, 768], [1600, 1000]]) {
        await page.setViewportSize({ width, height });
        for (const theme of ["light", "dark"]) {
          await look(path, `${nameOf(path)}-${width}-${theme}`, theme, process.env.PICTURES);
        }
      }
    }
  }
  await browser.close();
} finally {
  server.kill("SIGINT");
  await new Promise((done) => server.once("exit", done));
  rmSync(root, { recursive: true, force: true });
}
