import { useSignal } from "@preact/signals";
import { toolOf } from "../approval";
import { href } from "../route";
import { Provider } from "../provider";
import { Empty, Show, Title, count, useLoad, visible } from "../ui";

interface Row {
  agent?: string;
  tool?: string;
  provider?: string;
  day?: string;
  calls: number;
  failed: number;
  refused: number;
}

interface AgentDay {
  person: string;
  day: string;
  modelCalls: number;
  toolCalls: number;
  tokens: number;
  cost: number;
}

const periods: [days: number, label: string][] = [
  [1, "24 hours"],
  [7, "7 days"],
  [30, "30 days"],
];

export function Usage() {
  const days = useSignal(7);
  return (
    <>
      <Title sub="Calls as the audit log has them. Refused ones were not made: denied, over a limit, or without an approval.">Usage</Title>
      <div class="bar" role="group" aria-label="Period">
        {periods.map(([n, label]) => (
          <button key={n} type="button" class="b" aria-pressed={days.value === n} onClick={() => (days.value = n)}>
            {label}
          </button>
        ))}
      </div>
      {days.value > 1 && <Days days={days.value} />}
      <Group by="agent" name="Agents" days={days.value} to={(r) => `/audit?user=${encodeURIComponent(r.agent ?? "")}`} />
      <Group by="tool" name="Tools" days={days.value} to={(r) => `/audit?cap=${encodeURIComponent(toolOf(r.tool ?? ""))}`} />
      <Group by="provider" name="Providers" days={days.value} to={(r) => `/audit?provider=${encodeURIComponent(r.provider ?? "")}`} />
      <Model days={days.value} />
    </>
  );
}

const path = (by: string, days: number) => `/api/v1/usage?by=${by}&since=${days * 24}h&limit=${by === "day" ? 40 : 15}`;

/** One bar for each day of the period: made, failed and refused calls. Days are those of UTC, as in the log. */
function Days({ days }: { days: number }) {
  const list = useLoad<{ usage: Row[] }>(path("day", days), /^$/, 60000);
  return (
    <Show of={list}>
      {({ usage }) => {
        const of = new Map(usage.map((r) => [r.day, r]));
        const all = [...Array(days).keys()].map((i) => {
          const day = new Date(Date.now() - (days - 1 - i) * 86400000).toISOString().slice(0, 10);
          return of.get(day) ?? { day, calls: 0, failed: 0, refused: 0 };
        });
        const most = Math.max(1, ...all.map((r) => r.calls + r.refused));
        const wide = 100 / days;
        const part = (n: number) => (n / most) * 100;
        return (
          <figure class="chart">
            <svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label={`Calls of each day, at most ${most}`}>
              {all.map((r, i) => {
                const made = r.calls - r.failed;
                const x = i * wide + wide * 0.1;
                return (
                  <g key={r.day}>
                    <title>{`${r.day}: ${r.calls} calls, ${r.failed} of them failed, ${r.refused} refused`}</title>
                    <rect class="made" x={x} width={wide * 0.8} y={100 - part(made)} height={part(made)} />
                    <rect class="failed" x={x} width={wide * 0.8} y={100 - part(r.calls)} height={part(r.failed)} />
                    <rect class="refused" x={x} width={wide * 0.8} y={100 - part(r.calls + r.refused)} height={part(r.refused)} />
                  </g>
                );
              })}
            </svg>
            <figcaption class="who">
              {all[0].day} to {all[days - 1].day} (UTC), at most {most} a day: <span class="key made">made</span> <span class="key failed">failed</span>{" "}
              <span class="key refused">refused</span>
            </figcaption>
          </figure>
        );
      }}
    </Show>
  );
}

/** What the agent used of its language model, by day and person. A server without the agent shows nothing. */
function Model({ days }: { days: number }) {
  const list = useLoad<{ usage: AgentDay[] }>(`/api/v1/agent/usage?days=${days}`, /^$/, 60000);
  const usage = list.data?.usage ?? [];
  if (usage.length === 0) return null;
  return (
    <>
      <h2>
        The agent <span class="n">by day (UTC) and person</span>
      </h2>
      <ul class="list" aria-label="The agent">
        {usage.map((r) => (
          <li key={`${r.day} ${r.person}`}>
            <span class="row c-use">
              <span class="clip">
                {r.day} {visible(r.person)}
              </span>
              <span class="t">
                {count(r.modelCalls, "request")}, {count(r.toolCalls, "call")}, {count(r.tokens, "token")}{r.cost > 0 && `, cost ${r.cost.toFixed(4)}`}
              </span>
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function Group(p: { by: "agent" | "tool" | "provider"; name: string; days: number; to: (r: Row) => string }) {
  const list = useLoad<{ usage: Row[] }>(path(p.by, p.days), /^$/, 60000);
  return (
    <>
      <h2>
        {p.name} <span class="n">those with the most calls</span>
      </h2>
      <Show of={list}>
        {({ usage }) => {
          if (usage.length === 0) return <Empty>No call was made in this time.</Empty>;
          const most = Math.max(1, ...usage.map((r) => r.calls));
          return (
            <ul class="list" aria-label={p.name}>
              {usage.map((r) => (
                <li key={r[p.by]}>
                  <a class="row c-use" href={href(p.to(r))}>
                    <span class="clip">{p.by === "provider" && r.provider ? <Provider of={r.provider} /> : visible((p.by === "tool" ? toolOf(r.tool ?? "") : r[p.by]) || "–")}</span>
                    <meter class="opt" min={0} max={most} value={r.calls} aria-hidden="true" />
                    <span class="t">
                      {count(r.calls, "call")}{r.failed > 0 && `, ${r.failed} failed`}
                      {r.refused > 0 && `, ${r.refused} refused`}
                    </span>
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
