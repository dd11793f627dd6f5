import { href } from "../route";
import { toolOf } from "../approval";
import { withNames } from "../provider";
import { Ago, Empty, Show, Tag, Title, type Meaning, useLoad, visible } from "../ui";

interface Event {
  id: string;
  event: string;
  occurredAt: string;
  generation: number;
  correlationId?: string;
  payload: Record<string, any>;
}

const words: Record<string, [Meaning, string]> = {
  "capability.conflict.detected": ["wait", "conflict"],
  "capability.provider.selected": ["", "chosen"],
  "capability.fallback.selected": ["wait", "fallback"],
  "capability.name.disambiguated": ["", "renamed"],
  "capability.route.vetoed": ["bad", "vetoed"],
  "capability.slot.selected": ["", "slot"],
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

/** What an event is about, and its outcome. */
function about(e: Event): [string, string] {
  const p = e.payload;
  const what = p.action ?? p.slot ?? p.name ?? p.conflict ?? e.event;
  const outcome = p.error ? String(p.error).replaceAll("_", " ") : (p.providerKey ?? p.winner ?? p.requested ?? p.reason ?? p.code ?? "");
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
              {list.map((e) => {
                const [meaning, word] = words[e.event] ?? ["", e.event.replace("capability.", "").replaceAll(".", " ")];
                const [what, outcome] = about(e);
                const by = String(e.payload.decidedBy ?? "");
                const row = (
                  <>
                    <Tag is={e.payload.error ? "bad" : meaning}>{word}</Tag>
                    <span class="clip">
                      <b>{what}</b> <span class="who">{outcome}</span>
                    </span>
                    <span class="who opt clip">{because[by] ?? visible(by.replaceAll("_", " "))}</span>
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
