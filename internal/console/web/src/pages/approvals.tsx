import { useLayoutEffect } from "preact/hooks";
import { type Signal, useSignal } from "@preact/signals";
import { Failure, post } from "../api";
import { type Approval, actor, decide, pendingPath, toolOf } from "../approval";
import { go, href } from "../route";
import { Effect, effectWords } from "../effect";
import { Act, Ago, Empty, Show, Tag, Title, Trouble, forThePage, lettersAct, useLoad, visible } from "../ui";
import { ownerOf } from "../provider";
import { Change } from "./compare";
import { Answers, Asked, readApproval, states, topics, waits } from "./answers";

/** What the call would do, in one line: its first values. */
export function Gist(p: { a: Approval }) {
  if (waits(p.a)) {
    return (
      <span class="clip" title={visible(p.a.summary)}>
        <b>{p.a.kind === "question" ? "Question" : "Agent"}</b> <span class="m">{visible(p.a.summary).slice(0, 200)}</span>
      </span>
    );
  }
  const values = [...(p.a.shown?.argv ?? []), ...(p.a.shown?.members ?? [])];
  const first = values.slice(0, 2).map((v) => (v.name ? `${v.name} ` : "") + v.value).join(", ");
  return (
    <span class="clip" title={visible(p.a.summary)}>
      <b>{toolOf(p.a.capability)}</b> <span class="m">{visible(first).slice(0, 160)}</span>
      {values.length > 2 && <span class="who"> and {values.length - 2} more</span>}
    </span>
  );
}

/** A row of what waits for a decision. It is denied here; to approve it, or to answer, a person reads it first. */
export function Pending(p: { a: Approval; chosen?: boolean; done: () => unknown }) {
  const { a } = p;
  return (
    <li class={`row c-now new ${p.chosen ? "sel" : ""}`}>
      {waits(a) ? <Tag is="wait">{a.kind}</Tag> : <Effect of={a.effect} is="wait" />}
      <a class="open" href={href(`/approvals/${a.id}`)}>
        <Gist a={a} />
      </a>
      <span class="who opt clip">{visible(actor(a))}</span>
      <Ago at={a.asked} />
      <span class="btns">
        <a class="b p" href={href(`/approvals/${a.id}`)}>
          Review
        </a>
        {!waits(a) && (
          <Act kind="d" do={() => decide(a.id, "deny").then(p.done)}>
            Deny
          </Act>
        )}
      </span>
    </li>
  );
}

/** The keys of the workflow: j and k move, Enter opens. They work outside of inputs only. */
export function useKeys(keys: Record<string, () => void>, ofList = false): void {
  useLayoutEffect(() => {
    const on = (e: KeyboardEvent) => {
      if (!forThePage(e) || (e.key.length === 1 && !lettersAct())) return;
      // In a list Enter presses the button or link that has the focus.
      if (ofList && e.key === "Enter" && (e.target as Element).closest("main a, main button")) return;
      const f = keys[e.key];
      if (f) {
        e.preventDefault();
        f();
      }
    };
    addEventListener("keydown", on);
    return () => removeEventListener("keydown", on);
  });
}

export function Approvals() {
  const list = useLoad<{ approvals: Approval[] }>("/api/v1/approvals", topics);
  const at = useSignal(0);
  const all = list.data?.approvals ?? [];
  const pending = all.filter((a) => a.state === "pending").sort((a, b) => a.asked.localeCompare(b.asked));
  const decided = all.filter((a) => a.state !== "pending").reverse().slice(0, 100);
  useKeys({
    j: () => (at.value = Math.min(at.value + 1, pending.length - 1)),
    k: () => (at.value = Math.max(at.value - 1, 0)),
    Enter: () => pending[at.value] && go(`/approvals/${pending[at.value].id}`),
  }, true);
  return (
    <>
      <Title sub="Calls that wait until a person agrees. What you approve is what runs: another input asks again.">Approvals</Title>
      <Show of={list}>
        {() => (
          <>
            {pending.length === 0 ? (
              <Empty command="junctor policy ask files/write_file">
                Nothing waits for you. A call appears here when a rule asks for an approval, for example after:
              </Empty>
            ) : (
              <>
                <h2>
                  Waiting <span class="n">oldest first</span>
                  <span class="n opt keys">
                    <kbd>j</kbd> <kbd>k</kbd> move, <kbd>Enter</kbd> opens
                  </span>
                </h2>
                <ul class="list" aria-label="Pending approvals">
                  {pending.map((a, i) => (
                    <Pending key={a.id} a={a} chosen={i === at.value} done={list.reload} />
                  ))}
                </ul>
              </>
            )}
            {decided.length > 0 && (
              <>
                <h2>Decided</h2>
                <ul class="list">
                  {decided.map((a) => (
                    <li key={a.id}>
                      <a class="row c-flat" href={href(`/approvals/${a.id}`)}>
                        <Tag is={states[a.state]}>{a.state}</Tag>
                        <Gist a={a} />
                        <span class="who opt clip">{a.decided_by ? `by ${visible(a.decided_by)}` : visible(actor(a))}</span>
                        <Ago at={a.decided ?? a.asked} />
                      </a>
                    </li>
                  ))}
                </ul>
              </>
            )}
          </>
        )}
      </Show>
    </>
  );
}

const choices: [key: string, decision: string, label: string][] = [
  ["a", "once", "Approve once"],
  ["t", "timed", "Approve for 1 hour"],
  ["s", "session", "Approve for this session"],
  ["A", "always", "Approve always…"],
];

/** A decision, and what follows from it. Nothing is decided until it is confirmed. */
function Choice(p: { of: (typeof choices)[number]; a: Approval; armed: Signal<string>; kind?: string }) {
  const [key, decision, label] = p.of;
  return (
    <>
      <button
        type="button"
        class={`b ${p.kind ?? ""}`}
        aria-pressed={p.armed.value === decision}
        onClick={() => (p.armed.value = decision)}
      >
        {label} <kbd>{key}</kbd>
      </button>
      {p.armed.value !== decision && <span class="hint">{hint(decision, p.a)}</span>}
    </>
  );
}

export function ApprovalPage(p: { id: string }) {
  const one = useLoad(`/api/v1/approvals/${encodeURIComponent(p.id)}`, topics, 15000, readApproval);
  const armed = useSignal("");
  const failed = useSignal<Failure | null>(null);
  const run = async (decision: string) => {
    failed.value = null;
    armed.value = "";
    try {
      await decide(p.id, decision);
    } catch (e) {
      failed.value = e as Failure;
    }
    one.reload();
  };
  const pending = one.data?.approval.state === "pending";
  const call = one.data !== null && !waits(one.data.approval);
  const arm = (d: string) => () => pending && call && (armed.value = d);
  useKeys({
    a: arm("once"),
    t: arm("timed"),
    s: arm("session"),
    A: arm("always"),
    d: arm("deny"),
    Enter: () => armed.value && void run(armed.value),
    Escape: () => (armed.value = ""),
  });
  return (
    <Show of={one}>
      {({ approval: a, whole }) => (
        <>
          <Title
            up={["Approvals", "/approvals"]}
            sub={
              <>
                <b title={visible(a.principal)}>{visible(actor(a))}</b> asks for {waits(a) ? `an answer (${a.kind})` : "this call"}
                {a.module && <> of {ownerOf(a.module)}</>}. Effect: <b title={visible(a.effect)}>{effectWords(a.effect, true)}</b>.
              </>
            }
          >
            {waits(a) ? visible(a.summary) : toolOf(a.capability)}
          </Title>
          <div class="two after">
            <div>
              <Asked a={a} whole={whole} />
              {whole && pending && <Change a={a} input={whole.input} />}
              {!pending && <p class="note">The input is kept only while an approval is pending. Its digest stays: {a.input_digest}</p>}
            </div>
            <aside>
              {pending && waits(a) ? (
                <Answers a={a} done={one.reload} />
              ) : pending ? (
                <>
                  <div class="deciding">
                    <div class="btns">
                      <Choice of={choices[0]} a={a} armed={armed} kind="p" />
                      <Choice of={["d", "deny", "Deny"]} a={a} armed={armed} kind="d" />
                    </div>
                    {armed.value && (
                      <div class="note" role="status">
                        <p>{explain(armed.value, a)}</p>
                        <div class="btns">
                          <Act kind="p" do={() => run(armed.value)}>
                            Confirm <kbd>Enter</kbd>
                          </Act>
                          <button type="button" class="b" onClick={() => (armed.value = "")}>
                            Back <kbd>Esc</kbd>
                          </button>
                        </div>
                      </div>
                    )}
                  </div>
                  <details class="longer">
                    <summary>Approve for longer, with any input</summary>
                    <div class="btns">
                      {choices.slice(1).map((c) => (
                        <Choice key={c[1]} of={c} a={a} armed={armed} />
                      ))}
                    </div>
                  </details>
                </>
              ) : (
                <p>
                  <Tag is={states[a.state]}>{a.state}</Tag> {a.decision && a.decision !== "deny" ? `(${a.decision})` : ""} {a.decided_by && `by ${visible(a.decided_by)}`}
                </p>
              )}
              {failed.value && <Trouble error={failed.value} acted />}
              <dl>
                <dt>Waiting</dt>
                <dd>
                  <Ago at={a.asked} />
                  {a.expires ? `, at most until ${new Date(a.expires).toLocaleString()}` : ", until it is answered or the program goes on"}
                </dd>
                {a.permissions && a.permissions.length > 0 && (
                  <>
                    <dt>Permissions</dt>
                    <dd>{a.permissions.map(visible).join(", ")}</dd>
                  </>
                )}
                {a.session && (
                  <>
                    <dt>Session</dt>
                    <dd class="m">{visible(a.session)}</dd>
                  </>
                )}
                {a.barred && (
                  <>
                    <dt>May not decide</dt>
                    <dd>{visible(a.barred)}, because the call is made on its behalf</dd>
                  </>
                )}
                <dt>Digest of the input</dt>
                <dd class="m">{a.input_digest}</dd>
                <dt>Id</dt>
                <dd class="m">{a.id}</dd>
              </dl>
              {!waits(a) && (
                <p>
                  <a href={href(`/audit?cap=${encodeURIComponent(toolOf(a.capability))}`)}>Earlier calls of this tool</a>
                </p>
              )}
            </aside>
          </div>
        </>
      )}
    </Show>
  );
}

/** What follows from a decision, for a person who has not chosen one yet. */
function hint(decision: string, a: Approval): string {
  switch (decision) {
    case "once":
      return "Runs this call with exactly this input. The next one asks again.";
    case "timed":
      return `${actor(a)} may use this tool with any input for one hour.`;
    case "session":
      return `${actor(a)} may use this tool with any input until its session ends.`;
    case "always":
      return `${actor(a)} may use this tool with any input until you revoke it under Access, Grants.`;
  }
  return "The call does not run, and the agent receives a refusal.";
}

function explain(decision: string, a: Approval): string {
  const tool = toolOf(a.capability);
  switch (decision) {
    case "once":
      return "This call runs, with exactly this input, once.";
    case "timed":
      return `${actor(a)} may call ${tool} for one hour without asking, with any input.`;
    case "session":
      return `${actor(a)} may call ${tool} in this session without asking, with any input.`;
    case "always":
      return `${actor(a)} may call ${tool} from now on without asking, with any input, until the grant is revoked.`;
  }
  return "The call is refused.";
}
