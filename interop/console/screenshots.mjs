// Makes the screenshots of the documentation: node screenshots.mjs JUNCTOR OUT. It starts a server
// with real MCP servers in a temporary folder, lets an agent ask for something, and looks.
import { spawn, execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
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
  const page = await browser.newPage({ viewport: { width: 1280, height: 720 } });
  const look = async (path, name, theme) => {
    await page.goto(`${url.replace("127.0.0.1", "localhost")}/console${path}`);
    await page.locator("main h1").first().waitFor();
    await page.waitForFunction(() => !document.querySelector("main").textContent.includes("Loading…"));
    await page.evaluate((t) => (document.documentElement.dataset.theme = t), theme);
    await page.screenshot({ path: join(out, `${name}.png`) });
  };
  await page.goto(run("console").trim());
  await page.locator("nav").waitFor();
  const { approvals } = JSON.parse(run("approvals", "list", "--json"));
  const write = approvals.find((a) => a.capability.includes("write_file"));
  mkdirSync(out, { recursive: true });
  await look("/", "console-now", "light");
  await look(`/approvals/${write.id}`, "console-approval", "dark");
  await browser.close();
} finally {
  server.kill("SIGINT");
  await new Promise((done) => server.once("exit", done));
  rmSync(root, { recursive: true, force: true });
}
