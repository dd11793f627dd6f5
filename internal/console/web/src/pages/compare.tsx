import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { Failure, post } from "../api";
import type { Approval } from "../approval";
import { compare, type Line } from "../diff";
import { Act, visible } from "../ui";

/** Tools that write a whole file, and the tools of the same provider that read one. */
const readers: [writes: RegExp, reads: string][] = [
  [/\bfs\.writeText\b/g, "fs.readText"],
  [/\bwrite_file\b/g, "read_text_file"],
  [/\bwrite_file\b/g, "read_file"],
];

interface Write {
  path: string;
  text: string;
}

function writeOf(a: Approval, input: unknown): Write | null {
  const { path, text, content } = (input ?? {}) as Record<string, unknown>;
  const value = text ?? content;
  return typeof path === "string" && typeof value === "string" && readers.some(([w]) => a.capability.search(w) >= 0) ? { path, text: value } : null;
}

/** The old and new texts of a tool that edits parts of a file. */
function editsOf(input: unknown): Line[] {
  const { edits } = (input ?? {}) as { edits?: unknown };
  if (!Array.isArray(edits)) return [];
  const out: Line[] = [];
  for (const e of edits) {
    if (out.length > maxLines) break;
    if (typeof e?.oldText !== "string" || typeof e?.newText !== "string") return [];
    if (out.length > 0) out.push(["…", ""]);
    out.push(...compare(e.oldText, e.newText));
  }
  return out;
}

/** What a tool that writes a file would change. The file is read as the person who looks, when they ask for it. */
export function Change(p: { a: Approval; input: unknown }) {
  const lines = useSignal<Line[] | null>(null);
  const note = useSignal("");
  const write = writeOf(p.a, p.input);
  const edits = useMemo(() => editsOf(p.input), [p.input]);
  if (edits.length > 0) {
    return (
      <>
        <h2>What it would change</h2>
        <Lines list={edits} />
      </>
    );
  }
  if (!write) return null;
  const read = async () => {
    let failed: Failure | null = null;
    for (const [writes, reads] of readers) {
      if (p.a.capability.search(writes) < 0) continue;
      try {
        const got = await post<any>("/api/v1/invocations", { target: p.a.capability.replace(writes, reads), input: { path: write.path } });
        const r = got.result ?? {};
        const now = typeof r.text === "string" ? r.text : (r.content ?? []).map((c: any) => c?.text ?? "").join("");
        if (r.isError) throw new Failure(0, "failed", "", now || "The file cannot be read.", "", {});
        note.value = r.truncated ? "Only the beginning of the file was read, so lines after it seem to be added." : "";
        lines.value = compare(now, write.text);
        return;
      } catch (e) {
        if ((e as Failure).code === "not_found") {
          note.value = "The file does not exist yet.";
          lines.value = compare("", write.text);
          return;
        }
        failed = e as Failure;
        if (failed.code !== "unknown_capability") break;
      }
    }
    throw failed;
  };
  return (
    <>
      <h2>What it would change</h2>
      <div class="btns">
        <Act do={read}>{lines.value ? "Compare again" : "Compare with the file as it is now"}</Act>
      </div>
      {lines.value && (
        <>
          <p class="who">
            {note.value} {lines.value.some(([sign]) => sign === "-" || sign === "+") ? "The file can change before the call runs." : "Nothing would change."}
          </p>
          <Lines list={lines.value} />
        </>
      )}
    </>
  );
}

const maxLines = 5000; // as many elements as a browser draws at once without a pause

function Lines(p: { list: Line[] }) {
  return (
    <div class="code">
      {p.list.length > maxLines && <div class="h">The first {maxLines} lines; the whole input is above.</div>}
      <pre tabIndex={0} class="diff" aria-label="Changed lines">
        {p.list.slice(0, maxLines).map(([sign, text], i) => (
          <span key={i} class={sign === "+" ? "add" : sign === "-" ? "del" : sign === "…" ? "who" : undefined}>
            {sign === "…" ? (text ? `… ${text} equal lines` : "…") : `${sign} ${visible(text)}`}
            {"\n"}
          </span>
        ))}
      </pre>
    </div>
  );
}
