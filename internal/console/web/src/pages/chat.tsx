import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Failure, get, post, remove, stream } from "../api";
import { type Approval, pendingPath, toolOf } from "../approval";
import { go, here, href } from "../route";
import { Effect } from "../effect";
import { Act, Ago, Tag, Title, type Meaning, useLoad, visible } from "../ui";
import { App } from "./app";
import { Slot } from "./frames";

interface Call {
  name: string;
  invocation: string;
  effect: string;
  approval?: string;
  failed?: boolean;
  page?: boolean;
}

interface Meta {
  run?: string;
  status?: string;
  calls?: Call[];
  tainted?: boolean;
  confirmation?: { approvals?: string[]; approval?: string };
}

interface Message {
  role: string;
  text: string;
  metadata?: Meta;
  time?: string;
}

const states: Record<string, [Meaning, string]> = { failed: ["bad", "failed"], cancelled: ["", "stopped"] };

const words: Record<string, string> = { user: "You", assistant: "junctor" };

/** What a call of the agent did, from the record, and the page that its tool brings along. */
function Done(p: { run: string; c: Call }) {
  const page = useSignal<{ action: string; input: unknown; result: unknown } | null>(null);
  const c = p.c;
  const show = () => get(`/api/v1/agent/runs/${encodeURIComponent(p.run)}/pages/${encodeURIComponent(c.invocation)}`).then((v) => (page.value = v));
  return (
    <li>
      <span class="row c-done">
        {c.failed ? <Tag is="bad">failed</Tag> : <Effect of={c.effect} is="" />}
        <a class="m clip" href={href(`/audit/${encodeURIComponent(c.invocation)}`)}>
          {toolOf(c.name)}
        </a>
        {c.approval && (
          <a class="who" href={href(`/approvals/${encodeURIComponent(c.approval)}`)}>
            approved
          </a>
        )}
        {c.page && (page.value ? <button type="button" class="b" onClick={() => (page.value = null)}>Close its page</button> : <Act do={show}>Show its page</Act>)}
      </span>
      {page.value && <App tool={toolOf(page.value.action)} input={page.value.input} result={page.value.result} />}
    </li>
  );
}

/** An approval that a reply waits for, with its state now. The whole input is on its own page. */
function Waits(p: { id: string }) {
  const one = useLoad<any>(`/api/v1/approvals/${encodeURIComponent(p.id)}`, /^(approval|confirmation)\./, 60000);
  const a: Approval | undefined = one.data?.approval ?? one.data ?? undefined;
  if (!a) return null;
  const at = href(`/approvals/${encodeURIComponent(p.id)}`);
  if (a.state !== "pending") {
    return (
      <p class="who">
        <a href={at}>{toolOf(a.capability)}</a> was {a.state} {a.decided_by && `by ${visible(a.decided_by)}`}
      </p>
    );
  }
  return (
    <div class="note btns">
      <span>
        It waits for your decision about <b>{toolOf(a.capability)}</b>
      </span>
      <Effect of={a.effect} is="wait" />
      <a class="b p" href={at}>
        Review
      </a>
    </div>
  );
}

function Run(p: { meta: Meta; again: () => void }) {
  const { run, calls = [], status = "", confirmation } = p.meta;
  const cost = useSignal<any>(null);
  const [meaning, word] = states[status] ?? ["", ""];
  const approvals = status === "waiting" ? (confirmation?.approvals ?? (confirmation?.approval ? [confirmation.approval] : [])) : [];
  if (!run && approvals.length === 0) return null;
  return (
    <div class="deeds">
      {approvals.map((id) => (
        <Waits key={id} id={id} />
      ))}
      {run && (
        <>
          {calls.length > 0 && (
            <ul class="list" aria-label="What was done">
              {calls.map((c) => (
                <Done key={c.invocation} run={run} c={c} />
              ))}
            </ul>
          )}
          <p class="who btns">
            {word && <Tag is={meaning}>{word}</Tag>}
            {calls.length === 0 && status !== "waiting" && <span>No tool was called.</span>}
            {p.meta.tainted && <span title="The agent read text that neither you nor the operator wrote.">read text of others</span>}
            {cost.value ? (
              <span class="n">
                {cost.value.modelCalls} requests to the model, {cost.value.tokens} tokens{cost.value.cost > 0 && `, ${cost.value.cost.toFixed(4)}`}
              </span>
            ) : (
              <Act kind="plain" title="Requests to the model, tokens and their price" do={async () => (cost.value = await get(`/api/v1/agent/runs/${encodeURIComponent(run)}`))}>
                Cost
              </Act>
            )}
            {status === "failed" && (
              <button type="button" class="plain" onClick={p.again}>
                Ask again
              </button>
            )}
          </p>
        </>
      )}
    </div>
  );
}

export function Chat(p: { session: string }) {
  const session = p.session || "console";
  const base = `/api/v1/chat/sessions/${encodeURIComponent(session)}`;
  const sessions = useLoad<{ sessions: { session: string; active: string; messages: number }[] }>("/api/v1/chat/sessions?limit=50", /^(chat|agent)\./, 10000);
  const log = useLoad<{ messages: Message[] }>(`${base}/messages?limit=200`, /^(chat|agent)\./, 10000);
  const runs = useLoad<{ runs: { id: string; state: string; approvals?: string[] }[] }>(`/api/v1/agent/runs?session=${encodeURIComponent(session)}&limit=1`, /^(agent|approval|confirmation)\./, 10000);
  const commands = useLoad<{ commands: any[] }>("/api/v1/chat/slash-commands?enabled_only=true", /^extension\./, 60000);
  const given = new URLSearchParams(here.value.split("?")[1] ?? "").get("text") ?? "";
  const text = useSignal(given); // sent by the person only
  useEffect(() => {
    if (given) text.value = given;
  }, [given]);
  const sent = useSignal("");
  const heard = useSignal("");
  const step = useSignal("");
  const wrong = useSignal("");
  const busy = sent.value !== "";
  const asked = useLoad<{ approvals: Approval[] }>(busy ? pendingPath : null, /^(approval|confirmation)\./, 10000);
  const waiting = busy ? (asked.data?.approvals ?? []).filter((a) => a.session === session) : [];
  const messages = log.data?.messages ?? [];
  // The run that goes on, also after a reload of the page.
  const run = runs.data?.runs.find((r) => !/^(completed|failed|cancelled)$/.test(r.state));
  const shown = messages.at(-1)?.metadata?.confirmation?.approvals ?? [];
  const open = run?.state === "waiting" ? (run.approvals ?? []).filter((id) => !shown.includes(id)) : [];
  const works = run !== undefined && run.state !== "waiting";
  const rows = messages.length + (busy ? 1 : 0);
  const say = async (t: string) => {
    if (!t || busy) return;
    text.value = heard.value = step.value = wrong.value = "";
    sent.value = t;
    try {
      await stream("/api/v1/chat/messages", { session_id: session, text: t, stream: true }, (kind, value: any) => {
        if (kind === "text") heard.value += String(value);
        else if (kind === "progress") step.value = String(value?.message ?? "");
        else if (kind === "error") wrong.value = `${value?.message ?? "The reply failed."} ${value?.hint ?? ""}`;
      });
    } catch (e) {
      const f = e as Failure;
      wrong.value = `${f.message} ${f.hint ?? ""}`;
      if (text.value === "") text.value = t;
    }
    await log.reload();
    sent.value = "";
    sessions.reload();
  };
  const stop = async () => {
    const { runs: list } = await get<{ runs: any[] }>(`/api/v1/agent/runs?session=${encodeURIComponent(session)}&limit=1`);
    if (list[0]) await post(`/api/v1/agent/runs/${encodeURIComponent(list[0].id)}/cancel`);
  };
  const typed = text.value.split(" ")[0];
  const hints = text.value.startsWith("/") && !text.value.includes(" ") ? (commands.data?.commands ?? []).filter((c) => c.name.startsWith(typed)).slice(0, 8) : [];
  const own = sessions.data?.sessions ?? [];
  const before = (i: number) => messages.slice(0, i).findLast((m) => m.role === "user")?.text ?? "";
  return (
    <div class="chat">
      <Title sub="Slash commands work without a model. What was done is below each reply, as the record has it.">Chat</Title>
      <div class="talk">
        <ul class="talks" aria-label="Conversations">
          <li>
            <button type="button" class="b" onClick={() => go(`/chat/c${Date.now().toString(36)}`)}>
              New conversation
            </button>
          </li>
          {[...(own.some((s) => s.session === session) ? [] : [{ session, active: "" }]), ...own].map((s) => (
            <li key={s.session}>
              <a href={href(`/chat/${encodeURIComponent(s.session)}`)} aria-current={s.session === session ? "true" : undefined}>
                <span class="clip">{visible(s.session)}</span>
                {s.active && <Ago at={s.active} />}
              </a>
            </li>
          ))}
        </ul>
        <div class="said">
          <div class="log" role="log" aria-label="Conversation" tabIndex={0}>
            <div>
              {rows === 0 && (
                <div class="empty">
                  {runs.error?.reason === "agent_off" ? (
                    <>
                      <p>The agent is off: no model is set up, or agent.tools is off.</p>
                      <p>
                        To set a model up, write <code>model.kind</code>, <code>model.url</code> and <code>model.name</code> into
                        config.yaml, and restart the server.
                      </p>
                    </>
                  ) : (
                    runs.data && <p>The agent answers, with the model that config.yaml names.</p>
                  )}
                  <p>
                    Type <kbd>/</kbd> to see the commands.
                  </p>
                </div>
              )}
              {messages.map((m, i) => (
                <div class={`msg ${m.role}`} key={i}>
                  <b>
                    {words[m.role] ?? visible(m.role)} {m.time && <Ago at={m.time} />}
                  </b>
                  {visible(m.text)}
                  {m.role === "assistant" && m.metadata && <Run meta={m.metadata} again={() => void say(before(i))} />}
                </div>
              ))}
              {!busy && (works || open.length > 0) && (
                <div class="msg assistant" role="status">
                  <b>junctor</b>
                  {works && <span class="who">working…</span>}
                  {open.map((id) => (
                    <Waits key={id} id={id} />
                  ))}
                </div>
              )}
              {busy && (
                <>
                  {messages.findLast((m) => m.role === "user")?.text !== sent.value && (
                    <div class="msg user">
                      <b>You</b>
                      {visible(sent.value)}
                    </div>
                  )}
                  <div class="msg assistant" role="status">
                    <b>junctor</b>
                    {visible(heard.value)}
                    <span class="who"> {step.value ? visible(step.value) : "working…"}</span>
                    {waiting.map((a) => (
                      <Waits key={a.id} id={a.id} />
                    ))}
                  </div>
                </>
              )}
            </div>
          </div>
          <Slot name="chat-inline" />
          {wrong.value && (
            <p class="note bad" role="alert">
              {visible(wrong.value)}
            </p>
          )}
          {hints.length > 0 && (
            <ul class="list" aria-label="Commands">
              {hints.map((c) => (
                <li class="row c-hint" key={c.name}>
                  <button type="button" class="plain m" onClick={() => (text.value = `${c.name} `)}>
                    {visible(c.usage ?? c.name)}
                  </button>
                  <span class="who">{visible(c.summary)}</span>
                </li>
              ))}
            </ul>
          )}
          <form
            class="bar"
            onSubmit={(e) => {
              e.preventDefault();
              void say(text.value.trim());
            }}
          >
            <input class="wide" aria-label="Message" autocomplete="off" placeholder="Message, or / for commands" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
            {busy || works ? (
              <Act kind="d" do={stop}>
                Stop
              </Act>
            ) : (
              <button class="b p" type="submit">
                Send
              </button>
            )}
          </form>
          {messages.length > 0 && (
            <p class="btns">
              <Act kind="plain" do={() => (confirm(`Delete the conversation ${session}?`) ? remove(base).then(() => (sessions.reload(), log.reload())) : Promise.resolve())}>
                Delete this conversation
              </Act>
            </p>
          )}
        </div>
        <aside>
          <Slot name="chat-sidebar" />
        </aside>
      </div>
    </div>
  );
}
