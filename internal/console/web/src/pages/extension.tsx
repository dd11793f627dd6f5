import { useSignal } from "@preact/signals";
import { post, remove } from "../api";
import { go } from "../route";
import { Act, Show, Tag, Title, useLoad, visible } from "../ui";
import { Fact } from "./audit";

interface Extension {
  id: string;
  name: string;
  version: string;
  enabled: boolean;
  status: string;
  description?: string;
  problem?: string;
}

/** What the server asks a person to agree to before an extension runs. The text is the whole of it. */
interface Asked {
  screen: { tree_hash: string; source: string; author?: string; license?: string; sandbox_tier: string; asks_for_more?: string[] };
  text: string;
  asks: boolean;
}

/** One installed extension: what it may do, and whether it does. */
export function ExtensionPage(p: { id: string }) {
  const base = `/api/v1/extensions/${encodeURIComponent(p.id)}`;
  const one = useLoad<Extension>(base, /^(extension|catalog)\./);
  const asked = useLoad<Asked>(`${base}/screen`, /^extension\./);
  const read = useSignal("");
  const reload = () => (one.reload(), asked.reload());
  return (
    <Show of={one}>
      {(x) => (
        <>
          <Title
            up={["Providers", "/providers"]}
            sub={
              <>
                <Tag is={x.enabled ? "ok" : ""}>{x.enabled ? "enabled" : x.status === "INSTALLED" ? "disabled" : x.status.toLowerCase()}</Tag> {visible(x.version)}
              </>
            }
          >
            {visible(x.name)}
          </Title>
          {x.problem && <p class="note bad">{visible(x.problem)}</p>}
          <Show of={asked}>
            {(a) => (
              <div class="two">
                <div>
                  {(a.screen.asks_for_more ?? []).length > 0 && (
                    <div class="note">
                      <p>This version goes beyond what was agreed to:</p>
                      <ul>
                        {a.screen.asks_for_more!.map((m) => (
                          <li key={m}>{visible(m)}</li>
                        ))}
                      </ul>
                    </div>
                  )}
                  <h2>{x.enabled ? "What it may do" : "What it asks for"}</h2>
                  <div class="code">
                    <pre tabIndex={0}>{visible(a.text)}</pre>
                  </div>
                </div>
                <aside>
                  {!x.enabled && a.asks && (
                    <label>
                      <input
                        type="checkbox"
                        checked={read.value === a.screen.tree_hash}
                        onChange={(e) => (read.value = e.currentTarget.checked ? a.screen.tree_hash : "")}
                      />{" "}
                      I have read what it asks for
                    </label>
                  )}
                  <div class="btns">
                    {!x.enabled && (!a.asks || read.value === a.screen.tree_hash) && (
                      <Act kind="p" do={() => post(`${base}/enable`, { tree_hash: a.screen.tree_hash }).then(reload)}>
                        {a.asks ? "Agree and enable" : "Enable"}
                      </Act>
                    )}
                    {x.enabled && <Act do={() => post(`${base}/disable`).then(reload)}>Disable</Act>}
                    <Act kind="d" do={() => (confirm(`Remove ${x.id}? Its commands and tools go with it.`) ? remove(base).then(() => go("/providers")) : Promise.resolve())}>
                      Remove
                    </Act>
                  </div>
                  <dl>
                    <Fact name="Id" value={x.id} />
                    <Fact name="From" value={a.screen.source} />
                    <Fact name="Author, in its own words" value={a.screen.author} />
                    <Fact name="License" value={a.screen.license} />
                    <Fact name="Runs" value={`confined, tier ${a.screen.sandbox_tier} or better`} />
                    <Fact name="Digest of the package" value={a.screen.tree_hash} />
                  </dl>
                </aside>
              </div>
            )}
          </Show>
        </>
      )}
    </Show>
  );
}
