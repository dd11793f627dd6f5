import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { get } from "../api";
import { go, here, href } from "../route";
import { toolOf } from "../approval";
import { Effect } from "../effect";
import { Provider } from "../provider";
import { Act, Empty, Head, More, Show, Tag, Title, Virtual, When, json, useLoad, visible } from "../ui";

export interface Row {
  seq: number;
  timestamp: string;
  level: string;
  event: string;
  success: boolean | null;
  error: string | null;
  action: string | null;
  user_id: string | null;
  session_id: string | null;
  extension_id?: string | null;
  duration_seconds: number;
  metadata: any;
  hash: string;
}

const words: Record<string, string> = {
  capability_executed: "called",
  capability_failed: "failed",
  capability_started: "began",
  permission_denied: "refused",
  approval_required: "needs approval",
  confirmation_requested: "approval asked",
  confirmation_answered: "approval decided",
  login: "signed in",
  session_ended: "signed out",
  terminal_taken: "took a terminal over",
};

export const eventWord = (e: string) => words[e] ?? e.replaceAll("_", " ");

/** A call that was stopped because it needs an approval was not refused. Earlier versions recorded both as one event. */
export const needsApproval = (r: Row) => r.event === "approval_required" || r.event === "permission_denied" && (r.metadata?.reason === "confirmation_required" || /approval \((cnf|apr)_/.test(r.error ?? ""));

export function EventTag(p: { r: Row }) {
  if (needsApproval(p.r)) return <Tag is="wait">needs approval</Tag>;
  return <Tag is={p.r.success === false ? "bad" : p.r.event.startsWith("confirmation_req") ? "wait" : ""}>{eventWord(p.r.event)}</Tag>;
}

/** Why a call failed. The server answers a call of a hidden tool as if the tool did not exist; the record has the rules that hide it. */
export function cause(r: Row): string {
  const m = r.metadata ?? {};
  if (m.code !== "unknown_capability" || m.reason) return visible(r.error ?? "");
  const who = visible(m.principal?.id ?? r.user_id ?? "the caller");
  const rules = forbids(r);
  return rules ? `forbidden by the rule “${visible(rules)}” for ${who}` : `not visible to ${who}`;
}

/** The rules that forbade a call, or "". */
function forbids(r: Row): string {
  const d = r.metadata?.decision;
  return d?.effect === "forbid" ? (d.policy_ids ?? []).join(", ") : "";
}

/** A record without the members that it leaves empty. */
function known(v: any): any {
  if (!v || typeof v !== "object" || Array.isArray(v)) return v;
  return Object.fromEntries(Object.entries(v).filter(([, x]) => x !== null && x !== "" && !(Array.isArray(x) && x.length === 0)).map(([k, x]) => [k, known(x)]));
}

/** What a record is about. */
export function subject(r: Row): string {
  const m = r.metadata ?? {};
  const called = m.canonical_action ?? m.tool ?? r.action ?? m.capability_id;
  const name = called ?? m.file ?? m.change ?? m.upstream ?? m.name ?? m.task ?? r.extension_id ?? m.session ?? r.session_id;
  return name ? toolOf(String(name)) : eventWord(r.event);
}

const filters: [string, string][] = [
  ["", "Everything"],
  ["denied=true", "Refused"],
  ["event=confirmation_requested", "Approvals asked"],
  ["event=confirmation_answered", "Approvals decided"],
  ["success=false", "Failures"],
  ["level=WARNING", "Warnings"],
  ["event=login", "Sign-ins"],
];

const pageSize = 500; // records of one request

/** The rows of a filter, by their number: at most those of the pages that were asked for, because the page stays open for days. */
const noRows = (of: string) => ({ of, all: new Map<number, Row>(), limit: pageSize, end: false });

function add(to: ReturnType<typeof noRows>, records: Row[]): void {
  for (const r of records) to.all.set(r.seq, r);
  const extra = to.all.size - to.limit;
  if (extra <= 0) return;
  for (const seq of [...to.all.keys()].sort((a, b) => a - b).slice(0, extra)) to.all.delete(seq);
  to.end = false;
}

export function Audit() {
  const query = new URLSearchParams(here.value.split("?")[1] ?? "");
  const chosen = filters.find(([q]) => q !== "" && query.get(q.split("=")[0]) === q.split("=")[1])?.[0] ?? "";
  query.set("limit", String(pageSize));
  const list = useLoad<{ records: Row[] }>(`/api/v1/audit?${query}`, /./, 5000);
  const key = String(query);
  const rows = useRef(noRows(key));
  const added = useSignal(0);
  added.value; // older rows came
  const newest = list.data?.records ?? [];
  // A page that has none of the known rows leaves a gap: the list begins again.
  const gap = newest.length === pageSize && rows.current.all.size > 0 && !newest.some((r) => rows.current.all.has(r.seq));
  if (rows.current.of !== key || gap) rows.current = noRows(key);
  add(rows.current, newest);
  const records = [...rows.current.all.values()].sort((a, b) => b.seq - a.seq);
  const older = async () => {
    const of = rows.current;
    const q = new URLSearchParams(query);
    q.set("before", String(records.at(-1)!.seq));
    const page = await get<{ records: Row[] }>(`/api/v1/audit?${q}`);
    of.limit += pageSize;
    of.end = page.records.length < pageSize;
    add(of, page.records);
    added.value++;
  };
  const proof = useSignal<any>(null);
  const user = useSignal(query.get("user") ?? "");
  const set = (change: (q: URLSearchParams) => void) => {
    const q = new URLSearchParams(here.value.split("?")[1] ?? "");
    change(q);
    go(`/audit${q.size ? `?${q}` : ""}`, true);
  };
  return (
    <>
      <Title
        sub="Every call and every decision, in a chain that shows when a record was changed."
        others={<Act do={async () => (proof.value = await get("/api/v1/audit/verify"))}>Verify the chain</Act>}
      >
        Audit
      </Title>
      <div class="bar">
        <select
          aria-label="Filter"
          value={chosen}
          onChange={(e) => {
            const [k, v] = e.currentTarget.value.split("=");
            set((q) => {
              for (const [f] of filters) q.delete(f.split("=")[0]);
              if (k) q.set(k, v);
            });
          }}
        >
          {filters.map(([q, label]) => (
            <option key={q} value={q}>
              {label}
            </option>
          ))}
        </select>
        <input
          type="search"
          aria-label="Who"
          placeholder="who, such as agent:claude"
          value={user.value}
          onInput={(e) => (user.value = e.currentTarget.value)}
          onKeyDown={(e) => e.key === "Enter" && set((q) => (user.value ? q.set("user", user.value) : q.delete("user")))}
        />
      </div>
      {proof.value && (
        <p class={`note ${proof.value.first_bad ? "bad" : "ok"}`} role="status">
          {proof.value.first_bad ? `The chain is broken at record ${proof.value.first_bad.seq}: ${proof.value.first_bad.reason}` : `The chain holds: ${proof.value.records} records.`}
        </p>
      )}
      <Show of={list}>
        {() =>
          records.length === 0 ? (
            <Empty>
              No record matches {[...query].filter(([k]) => k !== "limit").map(([k, v]) => visible(`${k}=${v}`)).join(", ") || "yet"}.{" "}
              <a href={href("/audit")}>Show everything</a>
            </Empty>
          ) : (
            <>
              <Head of="c-audit" names={["No.", "Time", "Event", "About", "Who"]} />
              <Virtual
                label="Records, newest first"
                items={records}
                row={(r, _, style) => (
                  <a class="row c-audit" style={style} key={r.seq} href={href(`/audit/${r.seq}`)}>
                    <span class="n opt">{r.seq}</span>
                    <When at={r.timestamp} />
                    <span class="clip">
                      <EventTag r={r} />
                    </span>
                    <span class="clip" title={cause(r)}>
                      {subject(r) !== eventWord(r.event) ? subject(r) : "–"}{" "}
                      <span class="who">{r.error ? cause(r) : visible((r.metadata?.file && r.metadata.change) || "")}</span>
                    </span>
                    <span class="who opt clip">{visible(r.metadata?.principal?.id ?? r.user_id ?? "")}</span>
                  </a>
                )}
              />
              <More next={records.length >= pageSize && !rows.current.end && records.at(-1)!.seq > 1 ? "before" : undefined} shown={records.length} more={older} />
            </>
          )
        }
      </Show>
    </>
  );
}

/** A call by its run: not what was asked before it, and not who read its arguments later. */
const theCall = (records: Row[]) => records.find((one) => one.event.startsWith("capability_")) ?? records[0];

export function AuditRecord(p: { seq: string }) {
  const byRun = p.seq.startsWith("run_");
  const path = byRun ? `/api/v1/audit?run=${encodeURIComponent(p.seq)}&limit=200` : `/api/v1/audit?before=${Number(p.seq) + 1}&limit=1`;
  const one = useLoad<{ records: Row[] }>(path, /^$/, 60000);
  const run = one.data?.records[0]?.metadata?.run_id;
  const trail = useLoad<{ records: Row[] }>(run ? `/api/v1/audit?run=${encodeURIComponent(run)}&limit=200` : null, /^$/, 60000);
  const shown = one.data && theCall(one.data.records);
  const asked: string | undefined = shown?.metadata?.decision?.approval;
  const approval = useLoad<{ approval: any }>(asked ? `/api/v1/approvals/${encodeURIComponent(asked)}` : null, /^$/, 60000);
  const kept = useSignal<unknown>(undefined);
  useEffect(() => {
    kept.value = undefined;
  }, [run]);
  return (
    <Show of={one}>
      {({ records }) => {
        const r = theCall(records);
        if (!r) {
          return (
            <Empty>
              The audit has no record {visible(p.seq)}. <a href={href("/audit")}>Show the newest records</a>
            </Empty>
          );
        }
        const m = r.metadata ?? {};
        return (
          <>
            <Title
              up={["Audit", "/audit"]}
              sub={`Record ${r.seq}, ${new Date(r.timestamp).toLocaleString()}`}
              others={
                <>
                  {r.seq > 1 && (
                    <a class="b" href={href(`/audit/${r.seq - 1}`)}>
                      Record before
                    </a>
                  )}
                  <a class="b" href={href(`/audit/${r.seq + 1}`)}>
                    Record after
                  </a>
                </>
              }
            >
              {subject(r) === eventWord(r.event) ? subject(r) : `${eventWord(r.event)}: ${subject(r)}`}
            </Title>
            <div class="two">
              <div>
                {r.error && (
                  <p class="note bad">
                    {cause(r)}{" "}
                    {forbids(r) && <a href={href(`/access/rules?rule=${encodeURIComponent(m.decision.policy_ids[0])}`)}>Show the rules</a>}
                    {cause(r) !== visible(r.error) && <div class="who">The caller received: {visible(r.error)}</div>}
                  </p>
                )}
                {trail.data && (
                  <>
                    <h2>
                      What happened <span class="n">oldest first</span>
                    </h2>
                    <ul class="list">
                      {[...trail.data.records].reverse().map((s) => (
                        <li key={s.seq}>
                          <a class={`row c-flat ${s.seq === r.seq ? "sel" : ""}`} href={href(`/audit/${s.seq}`)}>
                            <EventTag r={s} />
                            <span class="clip">
                              {subject(s)} {s.error && <span class="who">{cause(s)}</span>}
                            </span>
                            <span class="who opt">{s.metadata?.duration_ms ? `${s.metadata.duration_ms} ms` : ""}</span>
                            <span class="t">{new Date(s.timestamp).toLocaleTimeString()}</span>
                          </a>
                        </li>
                      ))}
                    </ul>
                  </>
                )}
                {run && (
                  <>
                    <h2>Its arguments</h2>
                    <p class="btns">
                      <Act do={() => get(`/api/v1/audit/arguments/${encodeURIComponent(run)}`).then((v) => (kept.value = v))}>Show the arguments</Act>
                      <span class="who">They are kept if audit.arguments is set. Who reads them is recorded.</span>
                    </p>
                    {kept.value !== undefined && (
                      <div class="code">
                        <pre tabIndex={0}>{json(kept.value)}</pre>
                      </div>
                    )}
                  </>
                )}
                <h2>The record</h2>
                <div class="code full">
                  <pre tabIndex={0}>{json(known(r))}</pre>
                </div>
              </div>
              <aside>
                <dl>
                  <Fact name="Who" value={m.principal?.id ?? r.user_id} />
                  <Fact name="On behalf of" value={m.principal?.on_behalf_of} />
                  {m.provider && (
                    <>
                      <dt>Provider</dt>
                      <dd>
                        <Provider of={m.provider} />
                        <div class="m who">{visible(m.provider)}</div>
                      </dd>
                    </>
                  )}
                  {m.effect && (
                    <>
                      <dt>Effect</dt>
                      <dd>
                        <Effect of={m.effect} />
                      </dd>
                    </>
                  )}
                  <Fact name="Rule" value={m.decision?.policy_ids?.join(", ")} />
                  {asked && (
                    <>
                      <dt>Approval</dt>
                      <dd>
                        <a href={href(`/approvals/${asked}`)}>
                          {approval.data?.approval?.decided_by ? `${approval.data.approval.state} by ${visible(approval.data.approval.decided_by)}` : visible(asked)}
                        </a>
                      </dd>
                    </>
                  )}
                  <Fact name="Run" value={m.run_id} />
                  <Fact name="Called from" value={m.client ?? m.surface} />
                  <Fact name="Digest of the arguments" value={m.args_hash} />
                  <Fact name="Link to the record before" value={(r as any).prev_hash} />
                </dl>
                {m.selection?.explanation_id && (
                  <p class="btns">
                    <a class="b" data-why href={href(`/explain/${encodeURIComponent(m.selection.explanation_id)}`)}>
                      Why this provider <kbd>w</kbd>
                    </a>
                  </p>
                )}
              </aside>
            </div>
          </>
        );
      }}
    </Show>
  );
}

export function Fact(p: { name: string; value: unknown }) {
  if (p.value === undefined || p.value === null || p.value === "") return null;
  return (
    <>
      <dt>{p.name}</dt>
      <dd class="m">{visible(p.value)}</dd>
    </>
  );
}
