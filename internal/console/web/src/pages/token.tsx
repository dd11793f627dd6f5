import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { post } from "../api";
import { Act, visible } from "../ui";

/** A text with a button that copies it. Without a clipboard, as on a page without https, it is selected instead. */
export function Copied(p: { name: string; text: string }) {
  const at = useRef<HTMLPreElement>(null);
  const said = useSignal("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(p.text);
      said.value = "Copied";
    } catch {
      getSelection()?.selectAllChildren(at.current!);
      said.value = "Selected; press Ctrl C";
    }
  };
  return (
    <div class="code">
      <div class="h">
        <span>{p.name}</span>
        <span class="btns">
          <span role="status">{said.value}</span>
          <button type="button" class="b" aria-label={`Copy: ${p.name}`} onClick={copy}>
            Copy
          </button>
        </span>
      </div>
      <pre ref={at} tabIndex={0} aria-label={p.name}>
        {visible(p.text)}
      </pre>
    </div>
  );
}

/** Makes a token of an agent, and shows it once: it is on the page until that is left, and nowhere else. */
export function NewToken(p: { label: string; button: string; done?: () => void }) {
  const name = useSignal("");
  const made = useSignal<{ name: string; token: string } | null>(null);
  const create = async () => {
    made.value = await post("/api/v1/tokens", { role: "agent", name: name.value.trim() });
    name.value = "";
    p.done?.();
  };
  const url = `${location.origin}/mcp`;
  return (
    <>
      <form
        class="bar"
        onSubmit={(e) => {
          e.preventDefault();
          e.currentTarget.querySelector("button")?.click();
        }}
      >
        <input aria-label={p.label} placeholder="name, such as codex" autocomplete="off" maxLength={60} value={name.value} onInput={(e) => (name.value = e.currentTarget.value)} />
        <Act kind="p" off={!name.value.trim()} do={create}>
          {p.button}
        </Act>
      </form>
      {made.value && (
        <section aria-label="The new token">
          <p class="note" role="status">
            The token of agent:{visible(made.value.name)} is shown this once. Copy it now; who has it may do what this agent may do.
          </p>
          <Copied name="Address" text={url} />
          <Copied name="Token" text={made.value.token} />
          <Copied
            name="Lines for an mcp.json"
            text={JSON.stringify({ mcpServers: { junctor: { type: "http", url, headers: { Authorization: `Bearer ${made.value.token}` } } } }, null, 2)}
          />
        </section>
      )}
    </>
  );
}
