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
      <Title sub="Calls as the audit log has them. Refused calls did not run: they were denied, over a limit, or without an approval.">
        Usage
      </Title>
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

const dayName = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: "UTC" });

/** The labels of an axis from 0 to most or the next round number: two to six. */
function ticksOf(most: number): number[] {
  const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10(most / 2.5))).find((n) => n >= 1 && most / n <= 5) ?? 1;
  return [...Array(Math.ceil(most / step) + 1).keys()].map((i) => i * step);
}

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
        const ticks = ticksOf(Math.max(1, ...all.map((r) => r.calls + r.refused)));
        const most = ticks.at(-1)!;
        const wide = 100 / days;
        const bar = days > 7 ? 0.7 : 0.36; // of the width of a day
        const part = (n: number) => (n / most) * 100;
        return (
          <figure class="chart">
            <div class="plot">
              {ticks.map((n) => (
                <span class="tick" key={n} style={{ bottom: `${part(n)}%` }} aria-hidden="true">
                  {n}
                </span>
              ))}
              <svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label={`Calls of each day, on a scale to ${most}`}>
                {ticks.map((n) => (
                  <line key={n} x1="0" x2="100" y1={100 - part(n)} y2={100 - part(n)} />
                ))}
                {all.map((r, i) => {
                  const made = r.calls - r.failed;
                  const at = { x: i * wide + (wide * (1 - bar)) / 2, width: wide * bar };
                  return (
                    <g key={r.day}>
                      <title>{`${r.day}: ${r.calls} calls, ${r.failed} of them failed, ${r.refused} refused`}</title>
                      <rect class="made" {...at} y={100 - part(made)} height={part(made)} />
                      <rect class="failed" {...at} y={100 - part(r.calls)} height={part(r.failed)} />
                      <rect class="refused" {...at} y={100 - part(r.calls + r.refused)} height={part(r.refused)} />
                    </g>
                  );
                })}
              </svg>
            </div>
            <div
              class={`days ${days > 7 ? "many" : ""}`}
              style={{ gridTemplateColumns: `repeat(${days}, minmax(0, 1fr))` }}
              aria-hidden="true"
            >
              {all.map((r, i) => (
                <span key={r.day}>{(days - 1 - i) % (days > 7 ? 7 : 1) === 0 && dayName.format(Date.parse(r.day!))}</span>
              ))}
            </div>
            <figcaption class="who">
              Calls of each day (UTC): <span class="key made">made</span> <span class="key failed">failed</span>{" "}
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
          if (usage.length === 0) {
            return (
              <Empty>
                No call was made in this time. <a href={href("/connect")}>Connect an agent</a>, or choose a longer period.
              </Empty>
            );
          }
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
