import { href } from "../route";
import { toolOf } from "../approval";
import { withNames } from "../provider";
import { Ago, Empty, Show, Tag, Title, type Meaning, useLoad, visible } from "../ui";

interface Event {
  id: string;
  event: string;
  occurredAt: string;
  generation: number;
  workspaceId: string;
  agentId: string;
  correlationId?: string;
  payload: Record<string, any>;
}

const words: Record<string, [Meaning, string]> = {
  "capability.conflict.detected": ["wait", "open"],
  "capability.provider.selected": ["", "chosen"],
  "capability.fallback.selected": ["wait", "fallback"],
  "capability.name.disambiguated": ["", "renamed"],
  "capability.route.vetoed": ["bad", "blocked"],
  "capability.slot.selected": ["", "empty"], // without a winner
  "capability.selection.failed": ["bad", "not decided"],
};

/** Why a provider was chosen, by the value of the API. */
const because: Record<string, string> = {
  explicit_selector: "the call named it",
  session_binding: "bound to the session",
  route_binding: "bound to the conversation",
  current_adapter: "of this conversation",
  only_supported: "the only one that can",
  policy_forced_default: "operator's default",
  slot_default: "holds the slot",
  ranked_default: "ranked first",
  deterministic_fallback: "fixed order",
  composed: "all of them run",
};

/** The kind of an event that names no reason. */
const kinds: Record<string, string> = {
  "capability.conflict.detected": "a conflict",
  "capability.name.disambiguated": "a name",
  "capability.route.vetoed": "a route",
  "capability.slot.selected": "a slot",
};

const subjectOf = (p: Event["payload"]): string => p.action ?? p.slot ?? p.declaredName ?? p.key ?? "";
const decides = (e: Event) => !e.payload.error && Boolean(e.payload.winner || (e.payload.providerKey && e.event.endsWith(".selected")));

/** The outcome of the event at i of a list with the newest first. One that a later decision settled is not shown as wrong. */
function outcomeOf(list: Event[], i: number): [Meaning, string] {
  const e = list[i];
  const given = words[e.event] ?? ["", e.event.replace("capability.", "").replaceAll(".", " ")];
  const [meaning, word]: [Meaning, string] = e.payload.error ? ["bad", "not decided"] : e.payload.winner ? ["", "chosen"] : given;
  const of = (x: Event) => [subjectOf(x.payload), x.workspaceId, x.agentId].join("\n");
  const settled = meaning && !decides(e) && list.slice(0, i).some((x) => decides(x) && of(x) === of(e));
  return settled ? ["", "settled later"] : [meaning, word];
}

/** What an event is about, and its outcome. */
function about(e: Event): [string, string] {
  const p = e.payload;
  const what = subjectOf(p) || e.event;
  const wrong = String(p.error ?? p.code ?? p.reasonCode ?? "").replaceAll("_", " ");
  const outcome = wrong || (p.providerKey ?? p.winner ?? p.publicName ?? p.resolution ?? p.requested ?? "");
  return [p.action ? toolOf(what) : visible(what), withNames(String(outcome))];
}

/** How the catalog decides between providers: its conflicts, its slots, and its last choices. */
export function Choices() {
  const conflicts = useLoad<{ conflicts: any[] }>("/api/v1/catalog/conflicts", /^(catalog|conflict)\./);
  const slots = useLoad<{ slots: any[]; blocking: any[] }>("/api/v1/catalog/slots", /^catalog\./);
  const events = useLoad<{ events: Event[] }>("/api/v1/catalog/telemetry", /^(catalog|invocation)\./);
  return (
    <>
      <Title
        up={["Catalog", "/catalog"]}
        sub="If several providers offer the same tool, one of them gets the call. Operators decide in catalog.yaml or with junctor catalog."
      >
        How providers are chosen
      </Title>
      <h2>
        Conflicts <span class="n">two providers offer the same tool, name or command</span>
      </h2>
      <Show of={conflicts}>
        {({ conflicts: list }) =>
          list.length === 0 ? (
            <Empty>No two providers offer the same thing, so there is nothing to decide.</Empty>
          ) : (
            <ul class="list" aria-label="Conflicts">
              {list.map((c) => (
                <li class="row c-flat" key={`${c.class} ${c.key}`}>
                  <Tag is={c.winner ? "" : "wait"}>{c.winner ? "decided" : "open"}</Tag>
                  <span>
                    <b>{visible(c.key)}</b> <span class="who">{visible(c.resolution)}</span>
                    {c.members.map((m: string) => (
                      <div class="out m" key={m}>
                        {withNames(m)} {m === c.winner && <Tag is="ok">chosen</Tag>}
                      </div>
                    ))}
                    {c.remediation && <div class="who">{visible(c.remediation)}</div>}
                  </span>
                  <span class="who opt">{visible(c.class.replaceAll("_", " "))}</span>
                  <span />
                </li>
              ))}
            </ul>
          )
        }
      </Show>
      <h2>
        Slots <span class="n">jobs that only one provider may have at a time</span>
      </h2>
      <Show of={slots}>
        {({ slots: list }) => (
          <ul class="list" aria-label="Slots">
            {list.map((s) => (
              <li class="row c-flat" key={s.slot} title={`of ${visible((s.available ?? []).join(", "))}`}>
                <Tag is={s.winner ? "" : "bad"}>{s.winner ? "held" : "empty"}</Tag>
                <span class="clip">
                  <b>{visible(s.slot)}</b> <span class="who">{s.winner ? `by ${withNames(s.winner)}` : visible(s.error ?? "")}</span>
                </span>
                <span class="who opt">{visible(String(s.source ?? "").replaceAll("_", " "))}</span>
              </li>
            ))}
          </ul>
        )}
      </Show>
      <h2>
        Latest decisions <span class="n">newest first</span>
      </h2>
      <Show of={events}>
        {({ events: all }) => {
          const list = [...all].reverse().slice(0, 100);
          return list.length === 0 ? (
            <Empty>No call was made since the server started. The first one appears here.</Empty>
          ) : (
            <ul class="list" aria-label="Latest decisions">
              {list.map((e, i) => {
                const [meaning, word] = outcomeOf(list, i);
                const [what, outcome] = about(e);
                const by = String(e.payload.decidedBy ?? "");
                const row = (
                  <>
                    <Tag is={meaning}>{word}</Tag>
                    <span class="clip">
                      <b>{what}</b> <span class="who">{outcome}</span>
                    </span>
                    <span class="who opt clip">{(because[by] ?? visible(by.replaceAll("_", " "))) || kinds[e.event]}</span>
                    <Ago at={e.occurredAt} />
                  </>
                );
                return (
                  <li key={e.id}>
                    {e.payload.explanationId ? (
                      <a class="row c-flat" href={href(`/explain/${encodeURIComponent(e.payload.explanationId)}`)}>
                        {row}
                      </a>
                    ) : (
                      <span class="row c-flat">{row}</span>
                    )}
                  </li>
                );
              })}
            </ul>
          );
        }}
      </Show>
    </>
  );
}
