import { useSignal } from "@preact/signals";
import { Failure, post } from "../api";
import { go, href } from "../route";
import { Act, Title, Trouble, useLoad, visible } from "../ui";
import { threadsPath } from "./tasks";

interface Program {
  adapter: string;
  installed: boolean;
  installCommand?: string;
}

interface Created {
  threadId: string;
  agents: { status: string; error?: { code: string; reason: string; message: string; hint: string } }[];
}

const places: [value: string, label: string, field: string, placeholder: string, hint: string][] = [
  ["scratch", "A new, empty folder", "", "", "The folder is removed a day after the session ends."],
  ["repo", "A clone of a git repository", "Repository", "owner/name or a URL", "The agent works on a branch of the clone."],
  [
    "checkout",
    "A git checkout on the machine that junctor runs on",
    "Folder of the checkout",
    "/path/to/project",
    "The agent works on a branch of its own; your files stay as they are.",
  ],
];

const empty = { task: "", agentType: "", place: "scratch", at: "", title: "", criteria: "", approvalPreset: "" };

/** /tasks/new: gives a task to a coding agent. */
export function NewTask() {
  const programs = useLoad<Program[]>("/api/coding-agents/preflight", /^$/, 600000);
  const presets = useLoad<{ preset: string; description: string }[]>("/api/coding-agents/approval-presets", /^$/, 600000);
  const form = useSignal<Record<string, string>>(empty);
  const failed = useSignal<Failure[]>([]);
  const made = useSignal(""); // the thread of a task on which no agent works
  const setup = useSignal<{ hash: string; text: string } | null>(null);
  const v = form.value;
  const set = (name: string) => (e: { currentTarget: { value: string } }) => {
    form.value = { ...form.value, [name]: e.currentTarget.value };
    setup.value = null; // belongs to the checkout that was asked about
  };
  const list = programs.data ?? [];
  const installed = list.filter((p) => p.installed);
  const agents = installed.filter((p) => p.adapter !== "shell");
  const place = places.find((p) => p[0] === v.place)!;
  const ready = v.task.trim() !== "" && (v.place === "scratch" || v.at.trim() !== "") && (v.agentType !== "" || agents.length > 0);
  const start = async (agreed?: string) => {
    failed.value = [];
    made.value = "";
    const body: Record<string, unknown> = { task: v.task.trim() };
    for (const name of ["agentType", "title", "approvalPreset"]) if (v[name].trim()) body[name] = v[name].trim();
    if (v.place !== "scratch") body[v.place] = v.at.trim();
    const criteria = v.criteria.split("\n").map((line) => line.trim()).filter(Boolean);
    if (criteria.length > 0) body.acceptanceCriteria = criteria;
    if (agreed) body.setup = agreed;
    try {
      const created = await post<Created>(threadsPath, body);
      const wrong = created.agents.filter((a) => a.error);
      if (wrong.length < created.agents.length) return go(`/tasks/${created.threadId}`);
      made.value = created.threadId;
      failed.value = wrong.map(({ error: e }) => new Failure(0, e!.code, e!.reason, `${e!.message}.`, e!.hint, {}));
    } catch (e) {
      const f = e as Failure;
      const { tree_hash: hash, text } = f.details ?? {};
      if (f.reason === "setup_required" && hash) setup.value = { hash: String(hash), text: String(text) };
      else failed.value = [f];
    }
  };
  return (
    <>
      <Title
        up={["Tasks", "/tasks"]}
        sub="A coding agent works on it in a folder of its own. You watch it, answer its questions, and decide what is merged."
      >
        New task
      </Title>
      <form class="form" onSubmit={(e) => e.preventDefault()}>
        <label class="field">
          What is to be done (required)
          <textarea class="words" placeholder="Add a health check to the API, with a test." value={v.task} onInput={set("task")} />
        </label>
        <label class="field">
          Program
          <select value={v.agentType} onChange={set("agentType")}>
            <option value="">{agents.length > 0 ? "The one that fits best" : "Choose a program"}</option>
            {list.map((p) => (
              <option key={p.adapter} value={p.adapter} disabled={!p.installed}>
                {p.adapter}
                {p.adapter === "shell" ? " (runs the text as commands)" : ""}
                {p.installed ? "" : " (not installed)"}
              </option>
            ))}
          </select>
        </label>
        {programs.data && agents.length === 0 && (
          <p class="note">
            No coding agent is installed on the machine that junctor runs on. Install one, for example with{" "}
            <span class="m">{visible(list.find((p) => p.installCommand)?.installCommand)}</span>, or choose the shell.
          </p>
        )}
        <label class="field">
          Where it works
          <select value={v.place} onChange={set("place")}>
            {places.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
          <span class="hint">{place[4]}</span>
        </label>
        {place[2] && (
          <label class="field">
            {place[2]} (required)
            <input value={v.at} placeholder={place[3]} spellcheck={false} autocomplete="off" onInput={set("at")} />
          </label>
        )}
        <details class="more">
          <summary>Title, acceptance criteria and permissions</summary>
          <label class="field">
            Title
            <input value={v.title} maxLength={120} placeholder="the beginning of the task" onInput={set("title")} />
          </label>
          <label class="field">
            Acceptance criteria, one in a line
            <textarea class="words" value={v.criteria} onInput={set("criteria")} />
          </label>
          <label class="field">
            What it may do without asking
            <select value={v.approvalPreset} onChange={set("approvalPreset")}>
              <option value="">as the server is configured</option>
              {(presets.data ?? []).map((one) => (
                <option key={one.preset} value={one.preset}>
                  {visible(one.preset)}
                </option>
              ))}
            </select>
            <span class="hint">{visible(presets.data?.find((one) => one.preset === v.approvalPreset)?.description ?? "")}</span>
          </label>
        </details>
        {setup.value ? (
          <div class="note">
            <p>The checkout has a setup that you have not agreed to. It runs before the agent starts.</p>
            <div class="code">
              <pre tabIndex={0}>{visible(setup.value.text)}</pre>
            </div>
            <p class="btns">
              <Act kind="p" do={() => start(setup.value!.hash)}>
                Agree to the setup and start
              </Act>
              <Act do={() => start("none")}>Start without the setup</Act>
            </p>
          </div>
        ) : (
          <div class="btns">
            <Act kind="p" off={!ready} do={() => start()}>
              Start the task
            </Act>
            <a class="b plain" href={href("/tasks")}>
              Cancel
            </a>
            <span class="hint">You confirm it with a code or your passkey.</span>
          </div>
        )}
        {failed.value.map((f) => (
          <Trouble key={f.message} error={f} acted />
        ))}
        {made.value && (
          <p class="who">
            No agent works on the task. <a href={href(`/tasks/${made.value}`)}>Open it</a>, or change the form and start again.
          </p>
        )}
      </form>
    </>
  );
}
