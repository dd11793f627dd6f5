import { useSignal } from "@preact/signals";
import { toolOf } from "../approval";
import { useEffect } from "preact/hooks";
import { post } from "../api";
import { go, here, href } from "../route";
import { Act, Empty, Show, Tag, Title, type Meaning, useLoad, visible } from "../ui";
import { Provider, withNames } from "../provider";
import { Fact } from "./audit";

interface Step {
  step: number;
  name: string;
  outcome: string;
  in?: number;
  out?: number;
  rejected?: { providerKey: string; reason: string; ruleId?: string }[];
}

export interface Explanation {
  id?: string;
  action: string;
  generation: number;
  decidedAtStep: number;
  selected: { providerKey: string; capabilityId?: string } | null;
  composed?: { providerKey: string }[];
  steps: Step[];
  error: { code: string; message: string; candidates: string[]; wouldSelect?: string; remediation?: string } | null;
  inputs?: { context?: object; selector?: Record<string, string> };
}

/** An explanation as the API returns it: of a dry run, or a recorded one. */
export interface Explained {
  explanation?: Explanation;
  text?: string;
  rejected?: { providerKey: string; reason: string; step: number }[];
  selected?: { capability_id: string; provider: string };
}

const titles: Record<string, string> = {
  candidates: "Candidates",
  "explicit-selector": "Named by the call",
  "session-binding": "Bound to the session",
  "route-binding": "Bound to the conversation",
  "adapter-support": "Able to do it",
  "policy-forced-default": "Operator's default",
  "ranked-default": "Ranked default",
  "deterministic-fallback": "Fixed order",
};

const reasons: Record<string, string> = {
  slot_not_selected: "another provider holds the slot",
  planner_name: "agents call it by another name",
  not_visible: "not offered to this caller",
  out_of_scope: "outside of the context",
  policy_denied: "a rule denies it",
  route_blocked: "blocked in this conversation",
  cross_context_denied: "belongs to another conversation",
  unsupported_by_account: "the account does not support it",
  unavailable: "not available now",
  selector_mismatch: "not the one that the call names",
};

const outcomes: Record<string, [Meaning, string]> = {
  kept: ["", "all kept"],
  narrowed: ["run", "narrowed"],
  passed: ["", "not decisive"],
  skipped: ["", "does not apply"],
  selected: ["ok", "chosen"],
  composed: ["ok", "all run"],
  failed: ["bad", "not decided"],
};

/** The steps of a choice as a funnel: how many providers each step received and left, and which it rejected, and why. */
export function Funnel(p: { of: Explained }) {
  const x = p.of.explanation;
  if (!x) return <Empty>The server has not recorded how it chose.</Empty>;
  const sentences = new Map([...String(p.of.text ?? "").matchAll(/^\s+(\d)\s+(.*)$/gm)].map((m) => [Number(m[1]), m[2]]));
  const most = Math.max(1, ...x.steps.map((s) => s.in ?? 0));
  let left = x.steps[0]?.in ?? 0; // candidates before the step
  return (
    <ol class="list funnel" aria-label="Steps of the choice">
      {x.steps.map((s) => {
        const before = s.in ?? left;
        left = s.out ?? (s.outcome === "selected" ? 1 : s.outcome === "failed" ? 0 : before);
        const rejected = s.rejected ?? (p.of.rejected ?? []).filter((r) => r.step === s.step);
        const [meaning, word] = outcomes[s.outcome] ?? ["", s.outcome];
        return (
          <li class={`row c-funnel ${s.outcome === "skipped" ? "quiet" : ""}`} key={s.step}>
            <span class="n">{s.step}</span>
            <b>{titles[s.name] ?? visible(s.name)}</b>
            {s.outcome !== "skipped" && (
              <span class="flow">
                <meter min={0} max={most} value={left} aria-label={`${left} of ${most} left`} />
                <span class="t">
                  {before} → {left}
                </span>
              </span>
            )}
            <Tag is={meaning}>{word}</Tag>
            <span class="who">
              {withNames(sentences.get(s.step) ?? "")}
              {rejected.map((r) => (
                <div class="out" key={r.providerKey}>
                  <Provider of={r.providerKey} />: {reasons[r.reason] ?? visible(r.reason)}
                </div>
              ))}
            </span>
          </li>
        );
      })}
    </ol>
  );
}

/** The result of a choice in one sentence, and what would change it. */
function Result(p: { x?: Explanation; error?: { message: string; hint?: string } }) {
  const { x } = p;
  const runs = x && chosenKeys(x);
  if (runs?.length) {
    return (
      <p class="note ok">
        {runs.length > 1 ? "All of these run: " : "The call goes to "}
        <b>{withNames(runs.join(", "))}</b>.
      </p>
    );
  }
  const message = x?.error?.message ?? p.error?.message;
  if (!message) return null;
  const hint = x?.error?.remediation ?? p.error?.hint;
  return (
    <p class="note bad" role="status">
      {withNames(message[0].toUpperCase() + message.slice(1))}
      {hint && `. ${withNames(hint)}`}
      {x?.error?.wouldSelect && ` It would go to ${withNames(x.error.wouldSelect)}.`}
    </p>
  );
}

/** A word of a command line for a shell. */
const quoted = (s: string) => (/^[\w./:=@+-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`);

const known = ["workspace", "agent", "session", "route", "adapter"];

/** /catalog/{action}/why: the choice for a call now, with a context and a selector of the person. */
export function WhyPage(p: { action: string }) {
  const query = new URLSearchParams(here.value.split("?")[1] ?? "");
  const form = useSignal<Record<string, string>>(Object.fromEntries(query));
  const asked = new URLSearchParams({ action: p.action });
  const words = [`junctor catalog explain ${quoted(p.action)}`];
  for (const [k, v] of query) {
    if (!v) continue;
    asked.append(k === "select" ? "select" : "context", k === "select" ? v : `${k}=${v}`);
    words.push(k === "select" ? `--select ${quoted(v)}` : `--context ${quoted(`${k}=${v}`)}`);
  }
  const why = useLoad<Explained & { error?: any }>(`/api/v1/catalog/explain?${asked}`, /^(catalog|policy|grant)\./);
  return (
    <>
      <Title up={[toolOf(p.action), `/catalog/${encodeURIComponent(p.action)}`]} sub="How a provider is chosen for a call now. Nothing is called.">Why {visible(p.action)}</Title>
      <form
        class="bar"
        onSubmit={(e) => {
          e.preventDefault();
          const q = new URLSearchParams(Object.entries(form.value).filter(([, v]) => v));
          go(`/catalog/${encodeURIComponent(p.action)}/why${q.size ? `?${q}` : ""}`, true);
        }}
      >
        {[...known, "select"].map((k) => (
          <label class="field slim" key={k}>
            {k === "select" ? "Call names" : k[0].toUpperCase() + k.slice(1)}
            <input
              value={form.value[k] ?? ""}
              placeholder={k === "select" ? "provider=…" : k === "route" ? "kind:account:room" : "any"}
              spellcheck={false}
              onInput={(e) => (form.value = { ...form.value, [k]: e.currentTarget.value })}
            />
          </label>
        ))}
        <button class="b p" type="submit">
          Explain
        </button>
      </form>
      <Show of={why}>
        {(w) => (
          <div class="two after">
            <div>
              <Result x={w.explanation} error={w.error} />
              <Funnel of={w} />
              <p class="sub">
                On the command line: <code class="m">{visible(words.join(" "))}</code>
              </p>
            </div>
            <aside>
              <dl>
                <Key name="Chosen" of={w.selected?.provider} />
                <Fact name="Capability" value={w.selected?.capability_id} />
                <Fact name="Generation of the catalog" value={w.explanation?.generation} />
              </dl>
              <p>
                <a href={href(`/catalog/${encodeURIComponent(p.action)}`)}>The tool</a>
              </p>
            </aside>
          </div>
        )}
      </Show>
    </>
  );
}

/** A provider with its key, which an operator writes into catalog.yaml. */
export function Key(p: { name: string; of?: string }) {
  if (!p.of) return null;
  return (
    <>
      <dt>{p.name}</dt>
      <dd>
        <Provider of={p.of} />
        <div class="m who">{visible(p.of)}</div>
      </dd>
    </>
  );
}

const chosenKeys = (x: Explanation) => (x.composed?.length ? x.composed.map((c) => c.providerKey) : x.selected ? [x.selected.providerKey] : []);

/** What a choice came to, in one word. */
const chosen = (x: Explanation) => chosenKeys(x).join(", ") || (x.error?.code ?? "");

/** /explain/{id}: the choice that was recorded for a call, and the same choice now. */
export function ExplanationPage(p: { id: string }) {
  const one = useLoad<Explained>(`/api/v1/catalog/explanations/${encodeURIComponent(p.id)}`, /^$/, 600000);
  const now = useSignal<Explained | null>(null);
  const x = one.data?.explanation;
  useEffect(() => {
    now.value = null;
  }, [p.id]);
  const again = async () => (now.value = await post<Explained>("/api/v1/catalog/select", { action: x!.action, selector: x!.inputs?.selector, context: x!.inputs?.context }));
  const other = now.value?.explanation;
  const same = other && x && chosen(other) === chosen(x);
  return (
    <>
      <Title sub="How the provider of a call was chosen when it was made.">{x ? `Why ${visible(x.action)}` : visible(p.id)}</Title>
      <Show of={one}>
        {(w) => (
          <div class="two after">
            <div>
              <Result x={w.explanation} />
              <Funnel of={w} />
              <p class="btns">
                <Act do={again}>Choose again now</Act>
              </p>
              {other && (
                <p class={`note ${same ? "ok" : ""}`} role="status">
                  Now{" "}
                  {same ? (
                    "the same"
                  ) : other.selected || other.composed?.length ? (
                    <>
                      it goes to <b>{withNames(chosen(other))}</b>
                    </>
                  ) : (
                    <>no provider is chosen: {withNames(other.error?.message ?? "not decided")}</>
                  )}
                  {other.generation === x?.generation ? ", in the same generation of the catalog." : `; the catalog went from generation ${x?.generation} to ${other.generation}.`}
                </p>
              )}
            </div>
            <aside>
              <dl>
                <Fact name="Id" value={x?.id} />
                <Key name="Chosen" of={x?.selected?.providerKey} />
                <Fact name="Generation of the catalog" value={x?.generation} />
              </dl>
              {x && (
                <p>
                  <a href={href(`/catalog/${encodeURIComponent(x.action)}/why`)}>The choice now, with another context</a>
                </p>
              )}
            </aside>
          </div>
        )}
      </Show>
    </>
  );
}
