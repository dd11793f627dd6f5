import { useSignal } from "@preact/signals";
import { post } from "../api";
import { Act, Show, Tag, type Meaning, bytes, json, useLoad, visible } from "../ui";
import type { Approval, Shown } from "../approval";

export const topics = /^(approval|confirmation|grant)\./;
export const states: Record<string, Meaning> = { pending: "wait", approved: "ok", denied: "bad", expired: "", superseded: "", ended: "" };

/** Whether a program waits for the answer, which it takes as it is. */
export const waits = (a: Approval) => a.kind === "terminal" || a.kind === "question";


export function Field(p: { secret?: boolean; label?: string; value: string; set: (v: string) => void }) {
  return p.secret ? (
    <input type="password" autocomplete="off" aria-label={p.label} value={p.value} onInput={(e) => p.set(e.currentTarget.value)} />
  ) : (
    <input autocomplete="off" aria-label={p.label} value={p.value} onInput={(e) => p.set(e.currentTarget.value)} />
  );
}

/** The answers that a waiting program takes: a button for each, a text where it takes one, or the form. */
export function Answers(p: { a: Approval; done: () => void }) {
  const text = useSignal("");
  const said = useSignal<Record<string, string[]>>({});
  const path = `/api/v1/approvals/${encodeURIComponent(p.a.id)}`;
  const questions = p.a.shown?.questions ?? [];
  const send = (body: unknown) =>
    post(path, body).then(() => {
      text.value = "";
      said.value = {};
      p.done();
    });
  const set = (id: string, list: string[]) => (said.value = { ...said.value, [id]: list.filter((v) => v !== "") });
  if (questions.length > 1 || questions[0]?.multiple) {
    return (
      <div>
        {questions.map((q) => (
          <fieldset key={q.id}>
            <legend>{visible(q.text)}</legend>
            {(q.choices ?? []).map((c) => {
              const mine = said.value[q.id] ?? [];
              const on = mine.includes(c.label);
              return (
                <label key={c.n}>
                  <input
                    type={q.multiple ? "checkbox" : "radio"}
                    name={`${p.a.id}-${q.id}`}
                    checked={on}
                    onChange={() => set(q.id, q.multiple ? (on ? mine.filter((v) => v !== c.label) : [...mine, c.label]) : [c.label])}
                  />{" "}
                  {visible(c.label)} {c.description && <span class="who">{visible(c.description)}</span>}
                </label>
              );
            })}
            {(q.free_text || !q.choices?.length) && (
              <Field secret={q.secret} label={visible(q.text)} value={q.choices?.some((c) => said.value[q.id]?.includes(c.label)) ? "" : (said.value[q.id]?.[0] ?? "")} set={(v) => set(q.id, [v])} />
            )}
          </fieldset>
        ))}
        <div class="btns">
          <Act kind="p" do={() => send({ answers: said.value })}>
            Answer
          </Act>
        </div>
      </div>
    );
  }
  const one = questions[0];
  return (
    <div>
      <div class="btns">
        {(p.a.shown?.choices ?? []).map((c) => (
          <Act key={c.n} kind={c.effect === "deny" ? "d" : ""} title={c.description ? visible(c.description) : undefined} do={() => send({ answer: String(c.n) })}>
            {c.n}. {visible(c.label)}
          </Act>
        ))}
      </div>
      {one?.free_text && (
        <div class="bar">
          <Field secret={one.secret} label="Answer" value={text.value} set={(v) => (text.value = v)} />
          <Act do={() => send({ text: text.value })}>Answer</Act>
        </div>
      )}
    </div>
  );
}

/** What a waiting program asks, with all of its input and its answers. */
export function Asking(p: { id: string; done: () => void }) {
  const one = useLoad<{ approval: Approval; input?: unknown }>(`/api/v1/approvals/${encodeURIComponent(p.id)}`, topics, 3000);
  return (
    <Show of={one}>
      {({ approval: a, input }) =>
        a.state === "pending" ? (
          <div>
            <p>
              <b>{visible(a.summary)}</b>
            </p>
            <Values title="Details" list={a.shown?.details} />
            <Values title="Everything that was asked" list={a.shown?.members} />
            {input !== undefined && <Whole input={input} />}
            <Answers a={a} done={() => (one.reload(), p.done())} />
          </div>
        ) : (
          <p>
            <Tag is={states[a.state]}>{a.state}</Tag> {a.decided_by && `by ${visible(a.decided_by)}`}
          </p>
        )
      }
    </Show>
  );
}

export function Values(p: { title: string; list?: Shown[] }) {
  if (!p.list || p.list.length === 0) return null;
  return (
    <>
      <h2>{p.title}</h2>
      <div class="code">
        <dl class="members">
          {p.list.map((v, i) => (
            <>
              <dt>{visible(v.name ?? (p.title === "Program and arguments" ? String(i) : "input"))}</dt>
              <dd>
                {visible(v.value)}
                {v.bytes ? <span class="who"> … {bytes(v.bytes)} in all, whole below; SHA-256 {v.sha256}</span> : null}
              </dd>
            </>
          ))}
        </dl>
      </div>
    </>
  );
}

/** The whole input, every byte of it: long texts as text, the rest as JSON. */
export function Whole(p: { input: unknown }) {
  const texts: [string, string][] = [];
  if (p.input && typeof p.input === "object" && !Array.isArray(p.input)) {
    for (const [name, v] of Object.entries(p.input)) if (typeof v === "string" && (v.length > 80 || v.includes("\n"))) texts.push([name, v]);
  }
  return (
    <>
      <h2>The whole input</h2>
      {texts.map(([name, v]) => (
        <div class="code" key={name}>
          <div class="h">
            <span class="m">{visible(name)}</span>
            <span>{bytes(new TextEncoder().encode(v).length)}</span>
          </div>
          <pre tabIndex={0}>{visible(v)}</pre>
        </div>
      ))}
      <div class="code">
        <div class="h">
          <span>As JSON</span>
          <span>{bytes(new TextEncoder().encode(JSON.stringify(p.input)).length)}</span>
        </div>
        <pre tabIndex={0}>{json(p.input)}</pre>
      </div>
    </>
  );
}
