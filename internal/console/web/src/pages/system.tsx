import { useSignal } from "@preact/signals";
import { get } from "../api";
import { Act, Show, Tag, Title, count, json, useLoad, visible } from "../ui";
import { Fact } from "./audit";
import { Slot } from "./frames";

// rank orders findings: faults, warnings (which have a remedy), and the rest.
const rank = (c: any) => (!c.ok ? 0 : c.remedy ? 1 : 2);

function Checks(p: { list: any[] }) {
  return (
    <ul class="list">
      {p.list.map((c) => (
        <li class="row c-two" key={c.name}>
          <Tag is={(["bad", "wait", "ok"] as const)[rank(c)]}>{["look at it", "warning", "good"][rank(c)]}</Tag>
          <span>
            <b>{visible(c.name)}</b> <span class="who">{visible(c.detail)}</span>
            {c.remedy && <div>{visible(c.remedy)}</div>}
          </span>
        </li>
      ))}
    </ul>
  );
}

export function System() {
  const status = useLoad<any>("/api/v1/status", /^server\./, 5000);
  const doctor = useLoad<{ checks: any[] }>("/api/v1/doctor", /^server\./, 60000);
  const walls = useSignal<any>(null);
  return (
    <>
      <Title sub={status.data ? `junctor ${status.data.version}, up since ${new Date(status.data.started).toLocaleString()}` : ""}>System</Title>
      <h2>Health</h2>
      <Show of={doctor}>
        {({ checks }) => {
          const found = checks.filter((c) => rank(c) < 2).sort((a, b) => rank(a) - rank(b));
          const good = checks.filter((c) => rank(c) === 2);
          return (
            <>
              {found.length > 0 ? <Checks list={found} /> : <p class="note ok">Nothing is wrong.</p>}
              <details class="more">
                <summary>{count(good.length, "check")} without a finding</summary>
                <Checks list={good} />
              </details>
            </>
          );
        }}
      </Show>
      <h2>Server</h2>
      <Show of={status}>
        {(s) => (
          <dl class="list members">
            <Fact name="Address" value={s.url} />
            <Fact name="Catalog" value={`${s.catalog.entries} entries of ${s.catalog.modules} modules, generation ${s.catalog.generation}`} />
            <Fact name="Audit" value={`${s.audit.seq} records${s.audit.broken ? ", cannot be written" : ""}`} />
          </dl>
        )}
      </Show>
      <h2>
        Sandbox <span class="n">the self-test tries what a confined program must not do</span>
      </h2>
      <Act do={async () => (walls.value = await get("/api/v1/sandbox"))}>Show the last self-test</Act>
      {walls.value && (
        <>
          <p class={`note ${walls.value.held ? "ok" : "bad"}`}>
            Tier {walls.value.tier}: {walls.value.held ? "every act was held" : "an act got through"}.
          </p>
          <div class="code">
            <pre tabIndex={0}>{json({ facts: walls.value.facts, layers: walls.value.layers, limits: walls.value.limits })}</pre>
          </div>
        </>
      )}
      <Slot name="settings" />
    </>
  );
}
