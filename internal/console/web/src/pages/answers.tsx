import { useSignal } from "@preact/signals";
import { Fragment } from "preact";
import { getText, post } from "../api";
import { Act, Show, Tag, type Meaning, bytes, useLoad, visible } from "../ui";
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
          <Fragment key={c.n}>
            <Act kind={c.effect === "deny" ? "d" : ""} do={() => send({ answer: String(c.n) })}>
              {c.n}. {visible(c.label)}
            </Act>
            {c.description && <span class="hint">{visible(c.description)}</span>}
          </Fragment>
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
  const one = useLoad(`/api/v1/approvals/${encodeURIComponent(p.id)}`, topics, 3000, readApproval);
  return (
    <Show of={one}>
      {({ approval: a, whole }) =>
        a.state === "pending" ? (
          <div>
            <p>
              <b>{visible(a.summary)}</b>
            </p>
            <Asked a={a} whole={whole} />
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

/** The whole input of a call: its value, and its text as the server sent it. */
export interface WholeInput {
  input: unknown;
  text: string;
}

/** Reads an approval. The text of its input is the last member of the answer; a quote cannot be in a string as it is. */
export async function readApproval(path: string, background = false): Promise<{ approval: Approval; whole?: WholeInput }> {
  const answer = await getText(path, background);
  const { approval, input } = JSON.parse(answer);
  if (input === undefined) return { approval };
  const text = answer.slice(answer.indexOf(',"input":') + 9, answer.lastIndexOf("}"));
  try {
    JSON.parse(text);
    return { approval, whole: { input, text } };
  } catch {
    return { approval, whole: { input, text: JSON.stringify(input) } };
  }
}

const utf8 = (s: string) => new TextEncoder().encode(s).length;

/** The string at the name of a shown value, such as edits[0].newText, or undefined. */
function stringAt(of: unknown, name = ""): string | undefined {
  if (!/^([\w$-]+|\[\d+\])?((\.[\w$-]+)|\[\d+\])*$/.test(name)) return undefined;
  let v: any = of;
  for (const [step] of name.matchAll(/[\w$-]+/g)) v = v && typeof v === "object" && Object.hasOwn(v, step) ? v[step] : undefined;
  return typeof v === "string" ? v : undefined;
}

/** What a call asks for, whole and once: as its members, or as JSON, byte by byte. A value whose end the members do not show
 * has it shown as JSON first. Once an approval is decided there are the members only, long ones with their beginning. */
export function Asked(p: { a: Approval; whole?: WholeInput }) {
  const { argv = [], details = [], members = [] } = p.a.shown ?? {};
  // Where only the beginning of a detail is shown, what is whole has the details too.
  const hasDetails = details.some((v) => v.bytes);
  const both = hasDetails ? (p.whole?.input as { details?: unknown; input?: unknown }) : { input: p.whole?.input };
  const rowsOf = (list: Shown[], of: unknown) =>
    list.map((v) => {
      const text = stringAt(of, v.name);
      const fits = text !== undefined && v.value.startsWith('"') && (!v.bytes || v.bytes === utf8(text));
      return { v, text: fits && (v.bytes || text.includes("\n") || text.length > 80) ? text : undefined };
    });
  const rows = [...rowsOf(details, both?.details), ...rowsOf(members, both?.input)];
  const cut = p.whole !== undefined && (rows.some(({ v, text }) => v.bytes && text === undefined) || argv.some((v) => v.bytes));
  const asJSON = useSignal(cut);
  const json = asJSON.value && p.whole;
  const beside = !json ? rows : hasDetails ? [] : rows.slice(0, details.length);
  return (
    <>
      {argv.length > 0 && (
        <>
          <h2>Program and arguments</h2>
          <div class="code">
            <dl class="members">
              {argv.map((v, i) => (
                <Member key={i} name={String(i)} v={v} />
              ))}
            </dl>
          </div>
        </>
      )}
      {(p.whole || rows.length > 0) && (
        <>
          <h2>Everything that was asked</h2>
          <div class="code" role="group" aria-label="Everything that was asked">
            {p.whole && (
              <div class="h">
                <span>{bytes(utf8(p.whole.text))}</span>
                <label class="toggle">
                  <input type="checkbox" role="switch" checked={asJSON.value} onChange={(e) => (asJSON.value = e.currentTarget.checked)} /> As JSON
                </label>
              </div>
            )}
            {beside.length > 0 && (
              <dl class="members">
                {beside.map(({ v, text }, i) => (
                  <Member key={i} name={v.name ?? "input"} v={v} text={text} />
                ))}
              </dl>
            )}
            {json && <pre tabIndex={0}>{visible(json.text)}</pre>}
          </div>
        </>
      )}
    </>
  );
}

function Member(p: { name: string; v: Shown; text?: string }) {
  return (
    <>
      <dt>{visible(p.name)}</dt>
      <dd>
        {p.text !== undefined ? (
          <pre tabIndex={0}>{visible(p.text)}</pre>
        ) : (
          <>
            {visible(p.v.value)}
            {p.v.bytes ? (
              <span class="who">
                {" "}
                … {bytes(p.v.bytes)} in all; SHA-256 {p.v.sha256}
              </span>
            ) : null}
          </>
        )}
      </dd>
    </>
  );
}
