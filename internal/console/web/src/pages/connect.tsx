import { useSignal } from "@preact/signals";
import { Failure, post, remove } from "../api";
import { href } from "../route";
import { Act, Ago, Empty, Show, Tag, Title, Trouble, useLoad, visible } from "../ui";
import { NewToken } from "./token";

interface Client {
  name: string;
  title: string;
  found: boolean;
  file: string;
  connected: boolean;
  set_up: boolean;
  used?: string;
  servers: { name: string }[];
}

const here = (c: Client) => c.found || c.connected || c.set_up;

export function Connect() {
  const clients = useLoad<{ clients: Client[] }>("/api/v1/clients", /^client\./, 5000);
  const preview = useSignal<{ name: string; diff: string } | null>(null);
  const failed = useSignal<Failure | null>(null);
  const undone = useSignal("");
  const undo = async (c: Client) => {
    const r = await remove<{ removed?: string[] }>(`/api/v1/clients/${c.name}`);
    undone.value = `${c.title} is as it was before.` + (r?.removed?.length ? ` Removed from junctor: ${r.removed.join(", ")}.` : "");
    clients.reload();
  };
  const show = async (c: Client) => {
    failed.value = null;
    undone.value = "";
    try {
      const body = await post<any>(`/api/v1/clients/${c.name}`, { dry_run: true });
      preview.value = { name: c.name, diff: body.difference };
    } catch (e) {
      failed.value = e as Failure;
    }
  };
  const connect = async (c: Client) => {
    await post(`/api/v1/clients/${c.name}`, {});
    preview.value = null;
    clients.reload();
  };
  return (
    <>
      <Title
        sub={
          <>
            Programs that use junctor. What they can use is on the page <a href={href("/providers")}>Providers</a>.
          </>
        }
      >
        Connect an agent
      </Title>
      <h2>On the machine that junctor runs on</h2>
      {failed.value && <Trouble error={failed.value} />}
      {undone.value && (
        <p class="note" role="status">
          {visible(undone.value)}
        </p>
      )}
      <Show of={clients}>
        {({ clients: list }) => (
          <>
            {list.some(here) ? (
              <ul class="list" aria-label="Programs on the machine that junctor runs on">
                {list.filter(here).map((c) => (
                  <li key={c.name}>
                    <div class="row c-four">
                      <span>
                        <b>{c.title}</b>{" "}
                        {c.set_up && <span class="who">{c.used ? <>last request <Ago at={c.used} /> ago</> : "waiting for its first request"}</span>}
                      </span>
                      <span class="m opt clip">{c.file}</span>
                      <Tag is={c.connected ? "ok" : ""}>{c.connected ? "connected" : "found"}</Tag>
                      <span class="btns">
                        {c.found && !c.connected && <Act do={() => show(c)}>Connect…</Act>}
                        {c.set_up && (
                          <Act kind="d" do={() => undo(c)}>
                            Undo
                          </Act>
                        )}
                      </span>
                    </div>
                    {preview.value?.name === c.name && (
                      <div class="note">
                        <p>This changes {c.file}. It can be undone to the byte.</p>
                        <div class="code">
                          <pre tabIndex={0}>{visible(preview.value.diff)}</pre>
                        </div>
                        <p class="btns">
                          <Act kind="p" do={() => connect(c)}>
                            Write it
                          </Act>
                          <button type="button" class="b" onClick={() => (preview.value = null)}>
                            Leave it
                          </button>
                        </p>
                      </div>
                    )}
                  </li>
                ))}
              </ul>
            ) : (
              <Empty>
                No program that junctor can set up was found on the machine that junctor runs on. Install one of those below and it
                appears here, or connect any other program with a token.
              </Empty>
            )}
            {!list.every(here) && (
              <ul class="absent" aria-label="Programs that were not found">
                <li class="lead">Not found:</li>
                {list
                  .filter((c) => !here(c))
                  .map((c) => (
                    <li class="clip" key={c.name} title={`junctor looks for ${visible(c.file)}`}>
                      {c.title}
                    </li>
                  ))}
              </ul>
            )}
          </>
        )}
      </Show>
      <p class="sub">
        At the terminal, <span class="m">junctor setup</span> does the same, and moves the MCP servers that a program has behind junctor if you want it.
      </p>
      <h2>Any other program</h2>
      <p class="sub">
        A program that speaks MCP connects to <span class="m">{location.origin}/mcp</span> with a token of its own, by which rules and the record know it. The
        page <a href={href("/access")}>Access</a> lists the tokens, and revokes them.
      </p>
      <NewToken label="Name of the program" button="Create a token" />
    </>
  );
}
