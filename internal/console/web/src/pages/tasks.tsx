import { useSignal } from "@preact/signals";
import { Failure, get, post } from "../api";
import { href } from "../route";
import { Act, Ago, Empty, Head, Show, Tag, Title, Trouble, type Meaning, useLoad, visible } from "../ui";
import { Asking } from "./answers";
import { Fact } from "./audit";
import { Recordings } from "./recording";
import { Terminal } from "./terminal";

export interface Task {
  id: string;
  kind: string;
  owner: string;
  state: string;
  status: string;
  surface: string;
  thread?: string;
  title?: string;
  requests?: TaskRequest[];
  created: string;
  updated: string;
}

/** A question of a task, as the API tells it: a form of MCP, or with a blocker what a program waits for. */
export interface TaskRequest {
  key: string;
  method: string;
  approval?: string;
  params?: {
    message?: string;
    requestedSchema?: { properties?: Record<string, { type?: string; title?: string; enum?: string[] }> };
    _meta?: { blocker?: { id?: string } };
  };
}

export interface Thread {
  id: string;
  title: string;
  status: string;
  originalRequest: string;
  summary: string;
  latestSessionId: string;
  latestSessionLabel: string;
  latestWorkdir: string;
  latestRepo: string;
  activeSessionCount: number;
  decisionCount: number;
  createdAt: string;
  updatedAt: string;
  metadata?: { task?: string };
  sessions?: any[];
  decisions?: any[];
  nodes?: any[];
}

export const taskTitle = (t: Task) => visible(t.title ?? `${t.kind} ${t.id}`);

const meaning: Record<string, Meaning> = {
  active: "run",
  working: "run",
  busy: "run",
  waiting_on_user: "wait",
  blocked: "wait",
  failed: "bad",
  error: "bad",
  done: "ok",
  completed: "ok",
  finished: "ok",
};

export const threadsPath = "/api/coding-agents/coordinator/threads";

/** What a thread waits for, in a few words. */
function waitsFor(t: Thread, task?: Task): string {
  const requests = task?.requests ?? [];
  if (requests.some((r) => r.approval)) return "your approval";
  if (requests.length > 0 || t.status === "waiting_on_user") return "your answer";
  return "";
}

export function Tasks() {
  const list = useLoad<Thread[]>(threadsPath, /^(task|agent)\./, 5000);
  const tasks = useLoad<{ tasks: Task[] }>("/api/v1/tasks?limit=100", /^(task|agent|approval)\./);
  const sessions = useLoad<{ id: string; agentType?: string }[]>("/api/coding-agents", /^(task|agent)\./);
  return (
    <>
      <Title
        sub="Work that coding agents do for you: each task has its own folder, and you decide what leaves it."
        action={["New task", "/tasks/new"]}
      >
        Tasks
      </Title>
      <Show of={list}>
        {(threads) =>
          threads.length === 0 ? (
            <Empty command={'junctor tasks create "add a health check"'}>
              No task was created yet. <a href={href("/tasks/new")}>Create the first one</a> here, or at the terminal:
            </Empty>
          ) : (
            <>
              <Head of="c-task" names={["Title", "Program", "State", "Waits for", "Age"]} />
              <ul class="list" aria-label="Tasks">
                {threads.map((t) => (
                  <li key={t.id}>
                    <a class="row c-task" href={href(`/tasks/${t.id}`)}>
                      <span class="clip">
                        <b>{visible(t.title)}</b> <span class="who">{visible(t.summary)}</span>
                      </span>
                      <span class="who opt clip">{visible(sessions.data?.find((s) => s.id === t.latestSessionId)?.agentType ?? "")}</span>
                      <Tag is={meaning[t.status]}>{t.status.replaceAll("_", " ")}</Tag>
                      <span class="who">{waitsFor(t, tasks.data?.tasks.find((one) => one.thread === t.id))}</span>
                      <Ago at={t.updatedAt} />
                    </a>
                  </li>
                ))}
              </ul>
            </>
          )
        }
      </Show>
    </>
  );
}

export function TaskPage(p: { id: string }) {
  const one = useLoad<Thread>(`${threadsPath}/${encodeURIComponent(p.id)}`, /^(task|agent)\./, 3000);
  const session = one.data?.latestSessionId;
  const task = one.data?.metadata?.task;
  const asked = useLoad<{ task: Task }>(task ? `/api/v1/tasks/${task}` : null, /^(task|agent)\./, 3000);
  const requests = asked.data?.task.requests ?? [];
  const changed = () => (one.reload(), asked.reload());
  return (
    <Show of={one}>
      {(t) => (
        <>
          <Title
            up={["Tasks", "/tasks"]}
            sub={
              <>
                <Tag is={meaning[t.status]}>{t.status.replaceAll("_", " ")}</Tag> {visible(t.summary)}
              </>
            }
            others={
              task &&
              !/^(done|completed|finished|stopped|cancell?ed)$/.test(t.status) && (
                <Act kind="d" do={() => post(`/api/v1/tasks/${task}/cancel`).then(changed)}>
                  Stop the task
                </Act>
              )
            }
          >
            {visible(t.title)}
          </Title>
          <div class="two after">
            <div>
              {task && requests.map((r) => <Ask key={r.key} task={task} r={r} done={changed} />)}
              <h2>Request</h2>
              <div class="code">
                <pre>{visible(t.originalRequest)}</pre>
              </div>
              {session && (
                <>
                  <h2>What the agent shows</h2>
                  <Terminal session={session} />
                </>
              )}
              {t.sessions && t.sessions.length > 0 && (
                <>
                  <h2>Recording</h2>
                  <Recordings sessions={t.sessions.map((s) => ({ id: s.sessionId, name: s.label || s.sessionId }))} />
                </>
              )}
              <Work id={p.id} />
              {t.decisions && t.decisions.length > 0 && (
                <>
                  <h2>
                    Decisions <span class="n">newest first</span>
                  </h2>
                  <ul class="list">
                    {[...t.decisions].reverse().slice(0, 50).map((d: any) => (
                      <li class="row c-flat" key={d.id}>
                        <Tag>{visible(d.decision ?? d.event)}</Tag>
                        <span>{visible(d.reasoning ?? d.response ?? "")}</span>
                        <span class="who opt">{visible(d.event)}</span>
                        <Ago at={d.timestamp} />
                      </li>
                    ))}
                  </ul>
                </>
              )}
            </div>
            <aside>
              <dl>
                <Fact name="Task" value={task} />
                <Fact name="Program" value={t.sessions?.find((one) => one.sessionId === t.latestSessionId)?.framework} />
                <Fact name="Repository" value={t.latestRepo} />
                <Fact name="Folder" value={t.latestWorkdir} />
                <Fact name="Created" value={new Date(t.createdAt).toLocaleString()} />
                <Fact name="Decisions" value={t.decisionCount} />
                <Fact name="Id" value={t.id} />
              </dl>
            </aside>
          </div>
        </>
      )}
    </Show>
  );
}

/** One question of a task. What a program waits for is answered as the approval that it is. */
function Ask(p: { task: string; r: TaskRequest; done: () => void }) {
  const text = useSignal("");
  const approval = p.r.approval ?? p.r.params?._meta?.blocker?.id;
  const properties = p.r.params?.requestedSchema?.properties ?? {};
  const send = (action: string, content?: Record<string, unknown>) =>
    post(`/api/v1/tasks/${encodeURIComponent(p.task)}/answer`, { key: p.r.key, answer: content ? { action, content } : { action } }).then(() => ((text.value = ""), p.done()));
  if (p.r.approval) {
    return (
      <p class="note">
        It waits for an approval. <a href={href(`/approvals/${p.r.approval}`)}>Review</a>
      </p>
    );
  }
  if (approval) {
    return (
      <div class="note">
        <Asking id={approval} done={p.done} />
      </div>
    );
  }
  return (
    <div class="note">
      <pre>{visible(p.r.params?.message ?? "The agent waits for you.")}</pre>
      <div class="btns">
        {properties.approved && (
          <>
            <Act kind="p" do={() => send("accept", { approved: true })}>
              Do it
            </Act>
            <Act kind="d" do={() => send("accept", { approved: false })}>
              Do not
            </Act>
          </>
        )}
        {(properties.text?.enum ?? []).map((v) => (
          <Act key={v} do={() => send("accept", { text: v })}>
            {visible(v)}
          </Act>
        ))}
      </div>
      {properties.text && !properties.text.enum && (
        <div class="bar">
          <input aria-label="Answer" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
          <Act do={() => send("accept", { text: text.value })}>Answer</Act>
        </div>
      )}
    </div>
  );
}

interface Review {
  done: number;
  parts: number;
  head: string;
  branch: string;
  commits?: { part: string; branch: string; commit: string }[];
  conflicts?: string[];
  stat?: { text?: string };
  diff?: string; // base64
}

const decoded = (base64: string) => new TextDecoder().decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));

/** The work of a task in a checkout: its diff, and what the user does with it. It is loaded when it is
 * asked for, because the server joins the work of the parts for it. */
function Work(p: { id: string }) {
  const at = `${threadsPath}/${encodeURIComponent(p.id)}`;
  const review = useSignal<Review | null>(null);
  const failed = useSignal<Failure | null>(null);
  const said = useSignal("");
  const part = useSignal("");
  const comment = useSignal("");
  const sure = useSignal(false);
  const show = async () => {
    failed.value = null;
    try {
      review.value = await get<Review>(`${at}/diff`);
    } catch (e) {
      review.value = null;
      failed.value = e as Failure;
    }
  };
  const merge = (method: string) => async () => {
    const m = await post<{ branch: string; from: string; commit: string }>(`${at}/merge`, { commit: review.value?.head, ...(method && { method }) });
    said.value = m.from === m.commit ? `${m.branch} has all of it already.` : `${m.branch} is at ${m.commit.slice(0, 12)}, before at ${m.from.slice(0, 12)}.`;
  };
  const discard = async () => {
    const d = await post<{ branches: string[] }>(`${at}/discard`);
    sure.value = false;
    review.value = null;
    said.value = d.branches.length > 0 ? `Removed: ${d.branches.join(", ")}.` : "There was nothing to remove.";
  };
  const send = async () => {
    await post(`${at}/comment`, { part: part.value, text: comment.value, comments: [] });
    comment.value = "";
    said.value = "The agent has the review, and goes on.";
  };
  const r = review.value;
  return (
    <>
      <h2>Changes</h2>
      <div class="btns">
        <Act do={show}>{r ? "Show again" : "Show the changes"}</Act>
      </div>
      {failed.value && <Trouble error={failed.value} />}
      {said.value && (
        <p class="note" role="status">
          {visible(said.value)}
        </p>
      )}
      {r && (
        <>
          <p>
            {r.done} of {r.parts} parts are done. The work is on <span class="m">{visible(r.branch)}</span> at{" "}
            <span class="m">{visible(r.head.slice(0, 12))}</span>
            {(r.commits ?? []).length > 1 && ` (${(r.commits ?? []).map((c) => `${visible(c.part)} at ${visible(c.commit.slice(0, 12))}`).join(", ")})`}.
            {r.conflicts && r.conflicts.length > 0 && ` Conflicts in ${visible(r.conflicts.join(", "))}.`}
          </p>
          {r.stat?.text && (
            <div class="code">
              <pre>{visible(r.stat.text)}</pre>
            </div>
          )}
          <div class="code">
            <pre tabIndex={0}>{visible(decoded(r.diff ?? "")) || "Nothing is changed."}</pre>
          </div>
          <div class="btns">
            <Act kind="p" do={merge("")} title="Only moves the branch forward">
              Merge
            </Act>
            <Act do={merge("squash")}>Squash</Act>
            <Act do={merge("rebase")}>Rebase</Act>
            {sure.value ? (
              <>
                <Act kind="d" do={discard}>
                  Remove all work that was not merged
                </Act>
                <button type="button" class="b" onClick={() => (sure.value = false)}>
                  Back
                </button>
              </>
            ) : (
              <button type="button" class="b d" onClick={() => (sure.value = true)}>
                Discard…
              </button>
            )}
          </div>
          <div class="bar">
            {r.parts > 1 && <input aria-label="Part" placeholder="Part" value={part.value} onInput={(e) => (part.value = e.currentTarget.value)} />}
            <input aria-label="Review" placeholder="What the agent should change" value={comment.value} onInput={(e) => (comment.value = e.currentTarget.value)} />
            <Act do={send}>Comment</Act>
          </div>
        </>
      )}
    </>
  );
}
