import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Failure, get, me, post } from "../api";
import { go, here, href } from "../route";
import { effectWords, Effect, filterEffects } from "../effect";
import { usePerspective } from "../perspective";
import { Act, Empty, Head, More, Show, Tag, Title, Trouble, Virtual, type Meaning } from "../ui";
import { count, json, useLoad, usePaged, useStill, visible, whole } from "../ui";
import { toolOf } from "../approval";
import { App, type AppOf } from "./app";
import { Fact } from "./audit";
import { Provider } from "../provider";
import { type Explained, Funnel, Key } from "./explain";

interface Tool {
  name: string;
  tool: string;
  provider: string;
  effect: string;
  state: string;
  decision: string;
  because?: string;
  rules?: { id: string; file: string; line: number; text?: string }[];
  description?: string;
  app?: AppOf;
}

export const decisions: Record<string, Meaning> = { ask: "wait", deny: "bad" };
export const decisionWords: Record<string, string> = { allow: "allowed", ask: "asks first", deny: "forbidden" };

export function Catalog() {
  const query = new URLSearchParams(here.value.split("?")[1] ?? "");
  const { as, name, people } = usePerspective();
  const typed = useSignal(query.get("q") ?? "");
  const text = useStill(typed.value);
  const effect = useSignal("");
  const decision = useSignal("");
  const filter = new URLSearchParams({ limit: "500" });
  for (const [k, v] of Object.entries({ as: as ?? "", q: text, effect: effect.value, decision: decision.value })) if (v) filter.set(k, v);
  const { list, items: shown, next, more } = usePaged<Tool>(as === null ? null : "/api/v1/tools", "tools", "after", filter, /^(catalog|grant|policy)\./);
  return (
    <>
      <Title
        sub="Everything that can be called here, as one list: what it does to the world, who offers it, and what happens when it is called."
        others={
          <a class="b" href={href("/choices")}>
            How providers are chosen
          </a>
        }
      >
        Catalog
      </Title>
      <div class="bar">
        <input type="search" aria-label="Search" placeholder="tool or provider" value={typed.value} onInput={(e) => (typed.value = e.currentTarget.value)} />
        <select aria-label="Effect" value={effect.value} onChange={(e) => (effect.value = e.currentTarget.value)}>
          <option value="">any effect</option>
          {filterEffects.map((e) => (
            <option key={e} value={e}>
              {effectWords(e)}
            </option>
          ))}
        </select>
        <select aria-label="Decision" value={decision.value} onChange={(e) => (decision.value = e.currentTarget.value)}>
          <option value="">any decision</option>
          {Object.entries(decisionWords).map(([k, v]) => (
            <option key={k} value={k}>
              {v}
            </option>
          ))}
        </select>
        <For as={as} people={people} />
        <span class="n">{list.data ? count(list.data.total, "tool") : ""}</span>
      </div>
      <Show of={list}>
        {({ total }) =>
          total === 0 && !text && !effect.value && !decision.value ? (
            <Empty command="junctor mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes">Nothing can be called yet. <a href={href("/add")}>Add a provider</a></Empty>
          ) : shown.length === 0 ? (
            <Empty>
              No tool matches{text && ` “${text}”`}
              {effect.value && ` with the effect “${effectWords(effect.value)}”`}
              {decision.value && ` that is ${decisionWords[decision.value]} for ${name}`}.
            </Empty>
          ) : (
            <>
            <Head of="c-cat" names={["Tool", "Description", "Provider", "Effect", `For ${name}`]} />
            <Virtual
              label="Tools"
              items={shown}
              row={(t, _, style) => (
                <a class="row c-cat" style={style} key={`${t.provider} ${t.tool}`} href={href(`/catalog/${encodeURIComponent(t.tool)}?as=${encodeURIComponent(as ?? "")}`)}>
                  <b class="clip" title={visible(t.tool)}>
                    {toolOf(t.tool)}
                  </b>
                  <About of={t} />
                  <span class="opt clip">
                    <Provider of={t.provider} />
                  </span>
                  <Effect of={t.effect} />
                  <span title={`for ${name}`}>
                    <Tag is={decisions[t.decision]}>{decisionWords[t.decision] ?? t.decision}</Tag>
                  </span>
                </a>
              )}
            />
              <More next={next} shown={shown.length} total={total} more={more} />
            </>
          )
        }
      </Show>
    </>
  );
}

const maxDescription = 200; // characters that the list of the server has of a description

/** What a tool does, in a line; all that the server sent of it appears when a person points at it. */
function About(p: { of: Tool }) {
  const { description, name, tool } = p.of;
  const text = visible(description ? whole(description, maxDescription) : name && name !== tool ? `agents call it ${name}` : "–");
  return (
    <span class="who opt clip" title={text}>
      {text}
    </span>
  );
}

const outcomes: Record<string, string> = { allow: "allowed, no one else is asked", ask: "asks first for an approval", deny: "forbidden" };

/** What a call of the person who is signed in would come to. */
function Outcome(p: { of: Tool }) {
  const { decision, because, effect, rules } = p.of;
  const why = because || (decision === "deny" && rules?.map((r) => r.id).join(", "));
  return (
    <p class="hint">
      Runs as <b>{visible(me.value.principal)}</b>: {outcomes[decision] ?? visible(decision)}
      {why && ` (${visible(why)})`}. It {effectWords(effect, true)}.
    </p>
  );
}

/** Whose decisions are shown. */
function For(p: { as: string | null; people: string[] }) {
  return (
    <label class="for">
      Decision for:
      <select value={p.as ?? ""} onChange={(e) => go(`${here.value.split("?")[0]}?as=${encodeURIComponent(e.currentTarget.value)}`, true)}>
        {p.people.map((one) => (
          <option key={one} value={one}>
            {visible(one)}
          </option>
        ))}
        <option value="">you{me.value.principal && ` (${visible(me.value.principal)})`}</option>
      </select>
    </label>
  );
}

export function CatalogEntry(p: { action: string }) {
  const { as, name, people } = usePerspective();
  const why = useLoad<Explained>(`/api/v1/catalog/explain?action=${encodeURIComponent(p.action)}`, /^catalog\./);
  const words = p.action.split(/[./]/).pop() ?? "";
  const list = `/api/v1/tools?limit=1000&q=${encodeURIComponent(words)}`;
  const topics = /^(catalog|grant|policy)\./;
  const tools = useLoad<{ tools: Tool[] }>(as === null ? null : `${list}${as && `&as=${encodeURIComponent(as)}`}`, topics);
  const own = useLoad<{ tools: Tool[] }>(list, topics); // as the caller
  const entry = useSignal<any>(null);
  useEffect(() => {
    // The agents' catalog has descriptions and schemas.
    void get(`/api/v1/catalog/agent?action=${encodeURIComponent(p.action)}`).then((found) => (entry.value = found.actions[0] ?? null));
  }, [p.action]);
  const ofTool = (of: { tools: Tool[] } | null) => (of?.tools ?? []).filter((t) => toolOf(t.tool) === toolOf(p.action));
  const mine = ofTool(tools.data);
  const offers = ofTool(own.data);
  const chosen = offers.find((t) => t.provider === why.data?.selected?.provider) ?? offers[0];
  const harmless = chosen !== undefined && /^(read|write)$/.test(chosen.effect);
  const shows = mine.find((t) => t.app?.resource);
  const input = useSignal("{}");
  const answer = useSignal<any>(undefined);
  const sent = useSignal<unknown>({}); // the input of the answer
  const failed = useSignal<Failure | null>(null);
  const send = async (dry: boolean) => {
    failed.value = null;
    answer.value = undefined;
    try {
      const given = JSON.parse(input.value);
      const got = await post("/api/v1/invocations", { target: p.action, input: given, dry_run: dry });
      sent.value = given;
      answer.value = got;
    } catch (e) {
      failed.value = e instanceof Failure ? e : new Failure(0, "invalid_input", "", `The input is not JSON: ${(e as Error).message}.`, "", {});
    }
  };
  return (
    <>
      <Title up={["Catalog", "/catalog"]} sub={visible(entry.value?.description ?? "")}>{toolOf(p.action)}</Title>
      <div class="two">
        <div>
          <h2>Try it</h2>
          <label class="field">
            Input as JSON
            <textarea value={input.value} spellcheck={false} onInput={(e) => (input.value = e.currentTarget.value)} />
          </label>
          <div class="btns">
            <Act kind={harmless ? "" : "p"} do={() => send(true)}>
              Dry run
            </Act>
            <Act kind={harmless ? "p" : ""} do={() => send(false)}>
              Call it
            </Act>
          </div>
          {chosen && <Outcome of={chosen} />}
          {failed.value && <Trouble error={failed.value} acted />}
          {answer.value?.result?.content && shows && <App tool={shows.tool} input={sent.value} result={answer.value.result} />}
          {answer.value !== undefined && (
            <div class="code">
              <div class="h">Answer</div>
              <pre tabIndex={0}>{json(answer.value)}</pre>
            </div>
          )}
          {entry.value && (
            <>
              <h2>
                What it takes <span class="n">JSON schema of the input</span>
              </h2>
              <div class="code">
                <pre tabIndex={0}>{json(entry.value.inputSchema)}</pre>
              </div>
            </>
          )}
          <h2>
            Why this provider{" "}
            <a class="n" data-why href={href(`/catalog/${encodeURIComponent(p.action)}/why`)}>
              with another context <kbd>w</kbd>
            </a>
          </h2>
          <Show of={why}>{(w) => <Funnel of={w} />}</Show>
        </div>
        <aside>
          <For as={as} people={people} />
          <dl>
            {mine.map((t) => (
              <>
                <dt>
                  <Provider of={t.provider} />
                </dt>
                <dd>
                  <Effect of={t.effect} /> <Tag is={decisions[t.decision]}>{`${decisionWords[t.decision] ?? t.decision} for ${name}`}</Tag>
                  {t.rules?.map((r) => (
                    <div class="m" key={r.id}>
                      {r.file}:{r.line} {r.id}
                    </div>
                  ))}
                </dd>
              </>
            ))}
            <Fact name="Name that agents call" value={entry.value?.wireNames?.mcp} />
            <Key name="Chosen now" of={why.data?.selected?.provider} />
          </dl>
          <p>
            <a href={href(`/audit?cap=${encodeURIComponent(toolOf(p.action))}`)}>Its last calls</a>
          </p>
        </aside>
      </div>
    </>
  );
}
