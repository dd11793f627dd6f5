import { useSignal } from "@preact/signals";
import { me, post, remove } from "../api";
import { toolOf } from "../approval";
import { add, offered } from "../passkey";
import { Provider } from "../provider";
import { here, href } from "../route";
import { Act, Ago, Empty, Head, Show, Tabs, Tag, Title, count, useLoad, visible } from "../ui";
import { NewToken } from "./token";

/** Runs an action that takes rights away after the user has agreed to text. */
const agreed = (text: string, act: () => Promise<unknown>) => (confirm(text) ? act() : Promise.resolve());

function Passkeys() {
  const passkeys = useLoad<{ passkeys: any[] }>("/api/v1/console/passkeys", /^passkey\./);
  const name = useSignal("");
  return (
    <>
      <h2>
        Passkeys <span class="n">with one, you confirm dangerous decisions by touching it, and no code is taken</span>
      </h2>
      {offered() && (
        <div class="bar">
          <input aria-label="Name of a new passkey" placeholder="name, such as laptop" maxLength={60} value={name.value} onInput={(e) => (name.value = e.currentTarget.value)} />
          <Act do={async () => (await add(name.value), (name.value = ""), passkeys.reload())}>Add a passkey</Act>
        </div>
      )}
      <Show of={passkeys}>
        {({ passkeys: list }) =>
          list.length === 0 ? (
            <Empty>
              {offered()
                ? "No passkey was added. Name this device or key above, and add it; the code confirms the first."
                : "This browser offers no passkeys here. Open the console at localhost, or at an https address with a name."}
            </Empty>
          ) : (
            <ul class="list" aria-label="Passkeys">
              {list.map((p) => (
                <li class="row c-four" key={p.id}>
                  <b class="clip">{visible(p.name || p.id)}</b>
                  <span class="m clip">{visible(p.principal)}</span>
                  <Ago at={p.created} />
                  <Act
                    kind="d"
                    do={() =>
                      agreed(`Remove the passkey ${p.name || p.id}?`, () =>
                        remove(`/api/v1/console/passkeys/${p.id}`).then(passkeys.reload),
                      )
                    }
                  >
                    Remove
                  </Act>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
    </>
  );
}

const decided: Record<string, ["ok" | "wait" | "bad", string]> = { allow: ["ok", "allowed"], ask: ["wait", "asks first"], deny: ["bad", "forbidden"] };

/** Asks the rules what would happen, without calling anything. */
function May(p: { people: string[] }) {
  const who = useSignal("");
  const what = useSignal("");
  const found = useSignal<{ results: any[] } | null>(null);
  const ask = async () => (found.value = await post("/api/v1/policy/test", { as: who.value || p.people[0], target: what.value.trim() }));
  return (
    <>
      <h2>
        Try the rules <span class="n">what the rules decide about a call; nothing is called</span>
      </h2>
      <form
        class="bar"
        onSubmit={(e) => {
          e.preventDefault();
          e.currentTarget.querySelector("button")?.click();
        }}
      >
        <select aria-label="Who would call" value={who.value || p.people[0]} onChange={(e) => (who.value = e.currentTarget.value)}>
          {p.people.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
        <input type="search" aria-label="Tool that would be called" placeholder="tool, such as files/write_file" value={what.value} onInput={(e) => (what.value = e.currentTarget.value)} />
        <Act do={ask}>Ask the rules</Act>
      </form>
      {found.value && (
        <ul class="list" aria-label="Decisions of the rules">
          {found.value.results.map((r) => (
            <li class="row c-flat" key={r.capability}>
              <Tag is={decided[r.decision]?.[0]}>{decided[r.decision]?.[1] ?? visible(r.decision)}</Tag>
              <span>
                <b>{visible(r.tool)}</b> <span class="who">{visible(r.because ?? "")}</span>
                {(r.rules ?? []).map((rule: any) => (
                  <div class="m who" key={rule.id}>
                    {visible(rule.file)}:{rule.line} {visible(rule.id)}
                  </div>
                ))}
              </span>
              <span class="opt clip">
                <Provider of={r.provider} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

const isMine = (t: any) => `${t.role}:${t.name}` === me.value.principal;

const tabs: [path: string, name: string][] = [
  ["", "Tokens"],
  ["signin", "Passkeys and browsers"],
  ["grants", "Grants"],
  ["rules", "Rules"],
  ["secrets", "Secrets"],
];

const at = (tab: string) => (tab ? `/access/${tab}` : "/access");

function Tokens(p: { list: any[]; reload: () => Promise<void> }) {
  return (
    <ul class="list">
      {p.list.map((t) => (
        <li class="row c-four c-tok" key={t.id}>
          <span class="named">
            <b>
              {t.role}:{visible(t.name)}
            </b>
            {isMine(t) && <Tag is="ok">you</Tag>}
          </span>
          <span class="who opt clip">{(t.labels ?? []).map(visible).join(", ")}</span>
          <span class="who">{t.used ? <>used <Ago at={t.used} /> ago</> : "never used"}</span>
          <Act kind="d" do={() => (confirm(`Revoke ${t.role}:${t.name}? ${isMine(t) ? "It is yours: this browser is signed out." : "Its next request is refused."}`) ? remove(`/api/v1/tokens/${t.id}`).then(p.reload) : Promise.resolve())}>
            Revoke{isMine(t) && " (signs you out)"}
          </Act>
        </li>
      ))}
    </ul>
  );
}

/** /access/{tab}: one part of the page at a time. */
export function Access() {
  const named = here.value.split("?")[0].split("/")[2] ?? "";
  const tokens = useLoad<{ tokens: any[] }>("/api/v1/tokens", /^token\./);
  const grants = useLoad<{ grants: any[] }>("/api/v1/grants", /^(grant|approval|confirmation)\./);
  const rules = useLoad<{ rules: any[] }>("/api/v1/policy", /^policy\./);
  const sessions = useLoad<{ sessions: any[] }>("/api/v1/console/sessions", /^session\./);
  const secrets = useLoad<{ secrets: any[] }>("/api/v1/secrets", /^secret\./);
  const live = (t: any) => !t.revoked && (!t.expires || Date.parse(t.expires) > Date.now());
  const wanted = new URLSearchParams(here.value.split("?")[1] ?? "").get("rule"); // is listed first
  const tab = tabs.some(([path]) => path === named) ? named : "";
  const people = (tokens.data?.tokens ?? [])
    .filter((t) => live(t) && /^(agent|operator|admin)$/.test(t.role))
    .sort((a, b) => Number(b.role === "agent") - Number(a.role === "agent"))
    .map((t) => `${t.role}:${t.name}`);
  const numbers: Record<string, number | undefined> = {
    "": tokens.data?.tokens.filter(live).length,
    grants: grants.data?.grants.filter((g) => !g.revoked).length,
    rules: rules.data?.rules.length,
    secrets: secrets.data?.secrets.length,
  };
  return (
    <>
      <Title sub="Who comes in, and what they may do.">Access</Title>
      <Tabs label="Parts of Access" at={at(tab)} of={tabs.map(([path, name]) => ({ name, path: at(path), n: numbers[path] }))} />
      {tab === "" && (
        <>
          <p class="sub">
            Each agent and person has a token, which identifies it in rules and the audit. A revoked token is refused at the next request.
          </p>
          <NewToken label="Name of a new agent token" button="Create an agent token" done={tokens.reload} />
          <Show of={tokens}>
            {({ tokens: all }) => {
              const list = all.filter(live);
              const short = list.filter((t) => t.role === "task" || t.role === "node");
              return (
                <>
                  <Head of="c-four c-tok" names={["Token", "Labels", "Last request", ""]} />
                  <Tokens list={list.filter((t) => !short.includes(t))} reload={tokens.reload} />
                  {short.length > 0 && (
                    <details class="more">
                      <summary>{count(short.length, "token")} of running tasks and devices</summary>
                      <Tokens list={short} reload={tokens.reload} />
                    </details>
                  )}
                </>
              );
            }}
          </Show>
        </>
      )}
      {tab === "signin" && (
        <>
          <Passkeys />
          <h2>Browsers</h2>
          <Show of={sessions}>
            {({ sessions: list }) => (
              <ul class="list">
                {list.map((s) => (
                  <li class="row c-four" key={s.id}>
                    <span class="named">
                      <b>{visible(s.principal)}</b>
                      {s.id === me.value.id && <Tag is="ok">this browser</Tag>}
                    </span>
                    <span class="m opt clip">{s.id}</span>
                    <span class="who">
                      used <Ago at={s.used} /> ago
                    </span>
                    <Act
                      kind="d"
                      do={() =>
                        agreed(s.id === me.value.id ? "Sign this browser out?" : `Sign the browser ${s.id} of ${s.principal} out?`, () =>
                          remove(`/api/v1/console/sessions/${s.id}`).then(sessions.reload),
                        )
                      }
                    >
                      Sign out
                    </Act>
                  </li>
                ))}
              </ul>
            )}
          </Show>
        </>
      )}
      {tab === "grants" && (
        <>
          <p class="sub">Approvals that last longer than one call. After you revoke one, its calls ask again.</p>
          <Show of={grants}>
            {({ grants: list }) => {
              const standing = list.filter((g) => !g.revoked);
              return standing.length === 0 ? (
                <Empty>
                  No approval was given for longer than once. <a href={href("/approvals")}>Approve a call</a> for an hour, a session or
                  always, and it is listed here.
                </Empty>
              ) : (
                <ul class="list">
                  {standing.map((g) => (
                    <li class="row c-four" key={g.id}>
                      <b class="clip">{visible(g.principal || g.role)}</b>
                      <span class="m clip">{g.capability || g.action !== "*" ? toolOf(g.capability || g.action) : visible(g.module)}</span>
                      <span class="who opt">{g.expires ? `until ${new Date(g.expires).toLocaleString()}` : visible(g.scope)}</span>
                      <Act
                        kind="d"
                        do={() =>
                          agreed(`Revoke the grant of ${g.principal || g.role}? Its calls ask again.`, () =>
                            remove(`/api/v1/grants/${g.id}`).then(grants.reload),
                          )
                        }
                      >
                        Revoke
                      </Act>
                    </li>
                  ))}
                </ul>
              );
            }}
          </Show>
        </>
      )}
      {tab === "rules" && (
        <>
          <May people={people} />
          <h2>
            Rules <span class="n">change them with junctor policy, or in the policy folder</span>
          </h2>
          <Show of={rules}>
            {({ rules: list }) => (
              <>
                {[...list].sort((a, b) => Number(b.id === wanted) - Number(a.id === wanted)).map((r) => (
                  <div class="code" key={`${r.file}:${r.line}`}>
                    <div class="h">
                      <span>
                        <Tag is={r.effect === "forbid" ? "bad" : r.approval ? "wait" : "ok"}>
                          {r.effect === "forbid" ? "forbids" : r.approval ? "asks first" : "allows"}
                        </Tag>{" "}
                        {visible(r.id)}
                      </span>
                      <span class="m">
                        {visible(r.file)}:{r.line}
                      </span>
                    </div>
                    <pre tabIndex={0}>{visible(r.text)}</pre>
                  </div>
                ))}
              </>
            )}
          </Show>
        </>
      )}
      {tab === "secrets" && (
        <>
          <p class="sub">Passwords and keys that providers use. Only their names are shown.</p>
          <Show of={secrets}>
            {({ secrets: list }) =>
              list.length === 0 ? (
                <Empty command="junctor secrets set NAME">
                  No secret is stored. Store one at the terminal:
                </Empty>
              ) : (
                <ul class="list">
                  {list.map((s) => (
                    <li class="row c-flat" key={s.name}>
                      <Tag>secret</Tag>
                      <b>{visible(s.name)}</b>
                    </li>
                  ))}
                </ul>
              )
            }
          </Show>
        </>
      )}
    </>
  );
}
