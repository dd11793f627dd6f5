import { Failure } from "../api";
import { Act, Ago, Empty, type Loaded, Show, Tabs, Tag, Title, Trouble, Virtual, When, json, visible } from "../ui";
import { Funnel } from "./explain";

const away = new Failure(0, "unavailable", "", "The server does not answer.", "It may be restarting; this page tries again.", {});
const now = Date.now();
const state = (data: string[] | null, error: Failure | null): Loaded<string[]> => ({ data, error, at: now - 90_000, reload: async () => {} });
const hostile = '<img src=x onerror="alert(1)"> \u202egnp.exe \u001b[31mred';

const choice = {
  text: "For notes.add:\n  0  Three providers offer it, and one may not be used here.\n  1  The call names no provider.\n  2  Only notes:mcp:files can do it now: chosen.\n",
  rejected: [],
  explanation: {
    action: "notes.add",
    generation: 14,
    decidedAtStep: 2,
    selected: { providerKey: "notes:mcp:files" },
    error: null,
    steps: [
      { step: 0, name: "candidates", outcome: "narrowed", in: 3, out: 2, rejected: [{ providerKey: "notes:endpoint:far", reason: "policy_denied" }] },
      { step: 1, name: "explicit-selector", outcome: "skipped" },
      { step: 2, name: "adapter-support", outcome: "selected", rejected: [{ providerKey: "notes:node:phone", reason: "unavailable" }] },
    ],
  },
};

function List(p: { of: Loaded<string[]>; filter?: string }) {
  return (
    <Show of={p.of}>
      {(rows) =>
        rows.length === 0 ? (
          p.filter ? <Empty>No tool matches “{p.filter}” with the effect “changes”.</Empty> : <Empty command="junctor mcp add NAME -- COMMAND">Nothing can be called yet.</Empty>
        ) : (
          <ul class="list">
            {rows.map((r) => (
              <li class="row c-flat" key={r}>
                <Tag is="ok">ready</Tag>
                <span class="clip">{visible(r)}</span>
                <span class="who opt">agent:claude</span>
                <Ago at={now - 4000} />
              </li>
            ))}
          </ul>
        )
      }
    </Show>
  );
}

/** Every component in all its states, with fixed data: for people who change them, and for the tests of both themes. */
export function Kit() {
  return (
    <>
      <Title sub="Every component in all its states.">Components</Title>

      <h2>Meanings</h2>
      <p class="btns">
        <Tag>none</Tag>
        <Tag is="wait">waiting</Tag>
        <Tag is="run">running</Tag>
        <Tag is="bad">wrong</Tag>
        <Tag is="ok">done</Tag>
        <span class="n wait">3</span>
        <kbd>Ctrl K</kbd>
      </p>

      <h2>Buttons</h2>
      <p class="btns">
        <Act kind="p" do={async () => {}}>
          First
        </Act>
        <Act do={async () => {}}>Other</Act>
        <Act kind="d" do={async () => {}}>
          Dangerous
        </Act>
        <Act kind="plain" do={async () => {}}>
          Plain
        </Act>
        <button type="button" class="b" aria-pressed="true">
          Chosen
        </button>
        <button type="button" class="b p" disabled>
          Busy
        </button>
        <Act do={() => Promise.reject(away)}>Fails</Act>
      </p>

      <h2>Tabs</h2>
      <Tabs label="Tabs" at="/kit" of={[{ name: "Here", path: "/kit", n: 3 }, { name: "Elsewhere", path: "/kit/elsewhere" }]} />

      <h2>Notes</h2>
      <p class="note">Something waits for you.</p>
      <p class="note ok">It was done.</p>
      <Trouble error={away} />

      <h2>Lists</h2>
      <List of={state(["files/read_text_file", hostile, "a-name-that-does-not-end-".repeat(8)], null)} />
      <h2>Nothing yet</h2>
      <List of={state([], null)} />
      <h2>Filtered to nothing</h2>
      <List of={state([], null)} filter="zebra" />
      <h2>Not loaded yet</h2>
      <List of={state(null, null)} />
      <h2>Cannot be known</h2>
      <List of={state(null, away)} />
      <h2>Was known</h2>
      <List of={state(["files/read_text_file"], away)} />
      <h2>Ten thousand rows</h2>
      <div class="short">
        <Virtual
          label="Rows"
          items={Array.from({ length: 10_000 }, (_, i) => i)}
          row={(i, _, style) => (
            <div class="row c-two" style={style} key={i}>
              <span class="t">{i}</span>
              <span class="clip">row {i}</span>
            </div>
          )}
        />
      </div>

      <h2>Why a provider is chosen</h2>
      <Funnel of={choice} />

      <h2>Fields</h2>
      <div class="bar">
        <input type="search" aria-label="Search" placeholder="tool or provider" />
        <select aria-label="Effect">
          <option>any effect</option>
        </select>
        <span class="n">49 tools</span>
      </div>
      <label class="field">
        Name
        <input value="codex" />
      </label>
      <label class="field">
        Input as JSON
        <textarea value="{}" />
      </label>
      <label class="toggle">
        <input type="checkbox" role="switch" checked /> On
      </label>
      <label class="toggle">
        <input type="checkbox" role="switch" /> Off
      </label>
      <label class="check">
        <input type="checkbox" /> Also its children
      </label>

      <h2>Texts of others</h2>
      <div class="code">
        <div class="h">
          <span>input</span>
          <span class="who">300 KiB</span>
        </div>
        <pre tabIndex={0}>{json({ text: hostile })}</pre>
      </div>
      <div class="code">
        <pre class="diff" tabIndex={0}>
          <span class="del">- as it was{"\n"}</span>
          <span class="add">+ as it will be{"\n"}</span>
        </pre>
      </div>
      <div class="list">
        <div class="msg user">
          <b>You</b>
          What is the time?
        </div>
        <div class="msg assistant">
          <b>junctor</b>
          {visible(hostile)}
        </div>
      </div>

      <h2>Times</h2>
      <p class="btns">
        <Ago at={now - 90_000} /> <When at={new Date(now - 90_000).toISOString()} /> <When at="2026-01-31T08:09:10Z" />
      </p>

      <h2>Numbers</h2>
      <p>
        <meter min={0} max={4} value={3} aria-label="3 of 4" />
      </p>
      <dl>
        <dt>Provider</dt>
        <dd class="m">memory:builtin:default</dd>
      </dl>
    </>
  );
}
