import { href } from "../route";
import { toolOf } from "../approval";
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

/** What an event is about, and its outcome. */
function about(e: Event): [string, string] {
  const p = e.payload;
  const what = p.action ?? p.slot ?? p.name ?? p.conflict ?? e.event;
  const outcome = p.error ? p.error : (p.providerKey ?? p.winner ?? p.requested ?? p.reason ?? p.code ?? "");
  return [p.action ? toolOf(what) : visible(what), visible(outcome)];
}

/** How the catalog decides between providers: its conflicts, its slots, its last choices, and what operators can add. */
export function Choices() {
  const conflicts = useLoad<{ conflicts: any[] }>("/api/v1/catalog/conflicts", /^(catalog|conflict)\./);
  const slots = useLoad<{ slots: any[]; blocking: any[] }>("/api/v1/catalog/slots", /^catalog\./);
  const events = useLoad<{ events: Event[] }>("/api/v1/catalog/telemetry", /^(catalog|invocation)\./);
  const catalogs = useLoad<Record<string, any[]>>("/api/v1/catalog/static", /^(catalog|extension)\./, 60000);
  return (
    <>
      <Title up={["Catalog", "/catalog"]} sub="How the catalog decides between providers. An operator changes it in catalog.yaml, or with junctor catalog.">Choices</Title>
      <h2>Conflicts</h2>
      <Show of={conflicts}>
        {({ conflicts: list }) =>
          list.length === 0 ? (
            <Empty command="junctor catalog conflicts">No two providers claim the same thing.</Empty>
          ) : (
            <ul class="list" aria-label="Conflicts">
              {list.map((c) => (
                <li class="row c-flat" key={`${c.class} ${c.key}`}>
                  <Tag is={c.winner ? "" : "wait"}>{c.winner ? "decided" : "open"}</Tag>
                  <span>
                    <b>{visible(c.key)}</b> <span class="who">{visible(c.resolution)}</span>
                    {c.members.map((m: string) => (
                      <div class="out m" key={m}>
                        {visible(m)} {m === c.winner && <Tag is="ok">chosen</Tag>}
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
        Slots <span class="n">each is held by one provider</span>
      </h2>
      <Show of={slots}>
        {({ slots: list }) => (
          <ul class="list" aria-label="Slots">
            {list.map((s) => (
              <li class="row c-four" key={s.slot}>
                <b class="clip">{visible(s.slot)}</b>
                <span class="m opt clip">{visible((s.available ?? []).join(", "))}</span>
                <span class="who opt">{visible(String(s.source ?? "").replaceAll("_", " "))}</span>
                {s.winner ? <span class="m">{visible(s.winner)}</span> : <Tag is="bad">{visible(s.error ?? "no holder")}</Tag>}
              </li>
            ))}
          </ul>
        )}
      </Show>
      <h2>
        Last choices <span class="n">newest first</span>
      </h2>
      <Show of={events}>
        {({ events: all }) => {
          const list = [...all].reverse().slice(0, 100);
          return list.length === 0 ? (
            <Empty>Nothing was chosen since the server started.</Empty>
          ) : (
            <ul class="list" aria-label="Last choices">
              {list.map((e) => {
                const [meaning, word] = words[e.event] ?? ["", e.event.replace("capability.", "").replaceAll(".", " ")];
                const [what, outcome] = about(e);
                const row = (
                  <>
                    <Tag is={e.payload.error ? "bad" : meaning}>{word}</Tag>
                    <span class="clip">
                      <b>{what}</b> <span class="who">{outcome}</span>
                    </span>
                    <span class="who opt">{visible(String(e.payload.decidedBy ?? "").replaceAll("_", " "))}</span>
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
      <h2>
        What can be added <span class="n">from the packages of this server, without running them</span>
      </h2>
      <Show of={catalogs}>
        {(found) => {
          const list = ["install", "onboarding", "channels", "cli"].flatMap((of) => (found[of] ?? []).map((row: any) => ({ of, row })));
          return list.length === 0 ? (
            <Empty>No package describes something to add.</Empty>
          ) : (
            <ul class="list" aria-label="What can be added">
              {list.map(({ of, row }) => (
                <li class="row c-flat" key={`${of} ${row.id ?? row.name}`}>
                  <Tag>{of}</Tag>
                  <span>
                    <b>{visible(row.label ?? row.title ?? row.name ?? row.id)}</b> <span class="who">{visible(row.blurb ?? row.description ?? row.summary ?? "")}</span>
                  </span>
                  <span class="m opt clip">{visible(row.docsPath ?? row.command ?? "")}</span>
                  {of === "channels" ? <a href={href("/channels")}>Add</a> : <span />}
                </li>
              ))}
            </ul>
          );
        }}
      </Show>
    </>
  );
}
