import { href } from "../route";
import { Ago, Empty, Show, Tag, Title, useLoad, visible } from "../ui";
import { type Approval, pendingPath } from "../approval";
import { Pending } from "./approvals";
import { topics } from "./answers";
import { type Task, type Thread, taskTitle, threadsPath } from "./tasks";
import { type Row, cause, needsApproval, subject } from "./audit";

export function Now() {
  const approvals = useLoad<{ approvals: Approval[] }>(pendingPath, topics);
  const tasks = useLoad<{ tasks: Task[] }>("/api/v1/tasks?limit=100", /^(task|agent)\./);
  const upstreams = useLoad<{ upstreams: any[] }>("/api/v1/upstreams", /^(upstream|catalog)\./);
  const denied = useLoad<{ records: Row[] }>("/api/v1/audit?level=WARNING&since=24h&limit=20", /^(invocation|upstream|endpoint)\./);
  const threads = useLoad<Thread[]>(threadsPath, /^(task|agent)\./);
  const title = (t: Task) => {
    const thread = threads.data?.find((one) => one.id === t.thread);
    return thread ? visible(thread.title) : taskTitle(t);
  };
  const asking = (tasks.data?.tasks ?? []).filter((t) => t.state === "input-required" || t.state === "input_required");
  const working = (tasks.data?.tasks ?? []).filter((t) => t.state === "working" || t.state === "submitted");
  const pending = [...(approvals.data?.approvals ?? [])].sort((a, b) => a.asked.localeCompare(b.asked));
  const changed = (upstreams.data?.upstreams ?? []).filter((u) => (u.counts?.held ?? 0) + (u.counts?.quarantined ?? 0) > 0);
  const down = (upstreams.data?.upstreams ?? []).filter((u) => u.failed || (u.state !== "ready" && !u.disabled));
  const waiting = pending.length + asking.length + changed.length;
  return (
    <>
      <Title sub={`${waiting === 0 ? "Nothing waits" : waiting === 1 ? "One thing waits" : `${waiting} things wait`} for you. ${working.length === 0 ? "No task is" : working.length === 1 ? "One task is" : `${working.length} tasks are`} running.`}>Now</Title>
      <h2>
        Waits for you <span class="n">oldest first</span>
      </h2>
      <Show of={approvals}>
        {() =>
          waiting === 0 ? (
            <Empty command="junctor setup">When an agent needs a decision, it appears here. <a href={href("/connect")}>Connect an agent</a> first, here or at the terminal:</Empty>
          ) : (
            <ul class="list">
              {pending.map((a) => (
                <Pending key={a.id} a={a} done={approvals.reload} />
              ))}
              {asking.map((t) => (
                <li class="row c-now" key={t.id}>
                  <Tag is="wait">Question</Tag>
                  <span class="clip">{title(t)}</span>
                  <span class="who opt clip">{visible(t.surface)}</span>
                  <Ago at={t.updated} />
                  <span class="btns">
                    <a class="b" href={href(t.thread ? `/tasks/${t.thread}` : "/tasks")}>
                      Answer
                    </a>
                  </span>
                </li>
              ))}
              {changed.map((u) => (
                <li class="row c-now" key={u.name}>
                  <Tag is="wait">Changed</Tag>
                  <span>
                    <b>{visible(u.name)}</b> has {u.counts.held + u.counts.quarantined} definitions that wait for a review
                  </span>
                  <span class="who opt">MCP server</span>
                  <Ago at={u.synced} />
                  <span class="btns">
                    <a class="b" href={href(`/providers/${encodeURIComponent(u.name)}`)}>
                      See changes
                    </a>
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
      <h2>Running</h2>
      <Show of={tasks}>
        {() =>
          working.length === 0 ? (
            <Empty>
              No task is running. <a href={href("/tasks/new")}>Give a task to a coding agent</a>
            </Empty>
          ) : (
            <ul class="list">
              {working.map((t) => (
                <li key={t.id}>
                  <a class="row c-flat" href={href(t.thread ? `/tasks/${t.thread}` : "/tasks")}>
                    <Tag is="run">Task</Tag>
                    <span class="clip">{title(t)}</span>
                    <span class="who opt clip">{visible(t.owner)}</span>
                    <Ago at={t.created} />
                  </a>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
      <h2>
        Went wrong <span class="n">last 24 hours</span>
      </h2>
      <Show of={denied}>
        {({ records: all }) => {
          // A call that waits for an approval did not go wrong.
          const records = all.filter((r) => (r.success === false || /_(failed|down|denied|degraded|lost)$/.test(r.event)) && !needsApproval(r));
          return records.length + down.length === 0 ? (
            <Empty>Nothing went wrong. Refused and failed calls, and providers that are down, appear here.</Empty>
          ) : (
            <ul class="list">
              {down.map((u) => (
                <li key={u.name}>
                  <a class="row c-flat" href={href(`/providers/${encodeURIComponent(u.name)}`)}>
                    <Tag is="bad">Down</Tag>
                    <span class="clip">
                      <b>{visible(u.name)}</b> {visible(u.error ?? u.reason ?? u.state)}
                    </span>
                    <span class="who opt">MCP server</span>
                    <Ago at={u.since} />
                  </a>
                </li>
              ))}
              {records.map((r) => (
                <li key={r.seq}>
                  <a class="row c-flat" href={href(`/audit/${r.seq}`)}>
                    <Tag is="bad">{r.event === "permission_denied" ? "Refused" : r.success === false ? "Failed" : "Warning"}</Tag>
                    <span class="clip">
                      <b>{subject(r)}</b> <span class="who">{cause(r)}</span>
                    </span>
                    <span class="who opt clip">{visible(r.metadata?.principal?.id ?? r.user_id ?? "")}</span>
                    <Ago at={r.timestamp} />
                  </a>
                </li>
              ))}
            </ul>
          );
        }}
      </Show>
    </>
  );
}
