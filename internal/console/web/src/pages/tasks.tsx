import { useSignal } from "@preact/signals";
import { get, post } from "../api";
import { href } from "../route";
import { Act, Ago, Empty, Show, Tag, Title, type Meaning, useLoad, visible } from "../ui";
import { Fact } from "./audit";
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
  question?: any;
  created: string;
  updated: string;
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

export function Tasks() {
  const list = useLoad<Thread[]>(threadsPath, /^(task|agent)\./, 5000);
  return (
    <>
      <Title sub="Work that coding agents do for you: each task has its own folder, and you decide what leaves it.">Tasks</Title>
      <Show of={list}>
        {(threads) =>
          threads.length === 0 ? (
            <Empty command={'junctor tasks create "add a health check"'}>No task was created yet.</Empty>
          ) : (
            <ul class="list">
              {threads.map((t) => (
                <li key={t.id}>
                  <a class="row c-flat" href={href(`/tasks/${t.id}`)}>
                    <Tag is={meaning[t.status]}>{t.status.replaceAll("_", " ")}</Tag>
                    <span class="clip">
                      <b>{visible(t.title)}</b> <span class="who">{visible(t.summary)}</span>
                    </span>
                    <span class="who opt clip">{visible(t.latestSessionLabel)}</span>
                    <Ago at={t.updatedAt} />
                  </a>
                </li>
              ))}
            </ul>
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
  const asked = useLoad<any>(task ? `/api/v1/tasks/${task}` : null, /^(task|agent)\./, 3000);
  const answer = useSignal("");
  const question = asked.data?.question ?? asked.data?.blocker ?? asked.data?.task?.question;
  return (
    <Show of={one}>
      {(t) => (
        <>
          <Title
            sub={
              <>
                <Tag is={meaning[t.status]}>{t.status.replaceAll("_", " ")}</Tag> {visible(t.summary)}
              </>
            }
          >
            {visible(t.title)}
          </Title>
          <div class="two">
            <div>
              {question && (
                <div class="note">
                  <p>
                    <b>{visible(question.text ?? question.prompt ?? question.reason ?? "The agent asks")}</b>
                  </p>
                  {question.input !== undefined && <pre>{visible(typeof question.input === "string" ? question.input : JSON.stringify(question.input, null, 2))}</pre>}
                  <div class="btns">
                    {(question.options ?? []).map((o: any) => (
                      <Act key={o.n ?? o.label} do={() => post(`/api/v1/tasks/${task}/answer`, { answer: String(o.n ?? o.label) }).then(one.reload)}>
                        {o.n ? `${o.n}. ` : ""}
                        {visible(o.label ?? o)}
                      </Act>
                    ))}
                  </div>
                  <div class="bar">
                    <input aria-label="Answer" value={answer.value} onInput={(e) => (answer.value = e.currentTarget.value)} />
                    <Act do={() => post(`/api/v1/tasks/${task}/answer`, { answer: answer.value }).then(() => ((answer.value = ""), one.reload()))}>Answer</Act>
                  </div>
                </div>
              )}
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
              <div class="btns">
                <Act kind="d" do={() => get(threadsPath).then(() => post(`/api/v1/tasks/${task}/cancel`)).then(one.reload)}>
                  Stop the task
                </Act>
              </div>
              <dl>
                <Fact name="Task" value={task} />
                <Fact name="Agent" value={t.latestSessionLabel} />
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
