import { useSignal } from "@preact/signals";
import { get, post } from "../api";
import { href } from "../route";
import { Title, useLoad, visible } from "../ui";

/** What the agent did for a reply, as the governed path recorded it, and what it waits for. */
function Deeds({ meta }: { meta: any }) {
  if (!meta?.run) return null;
  const calls: any[] = meta.calls ?? [];
  const count = new Map<string, number>();
  for (const c of calls) {
    const kind = c.failed ? "failed" : (c.effect ?? "call");
    count.set(kind, (count.get(kind) ?? 0) + 1);
  }
  const approved = calls.filter((c) => c.approval && !c.failed).length;
  const done = [...count].map(([kind, n]) => `${n} ${kind}`).join(", ");
  const waits: string[] = meta.status === "waiting" ? (meta.confirmation?.approvals ?? []) : [];
  return (
    <div class="who" title={calls.map((c) => visible(c.name)).join(", ")}>
      {waits.length > 0
        ? waits.map((id) => (
            <a key={id} href={href(`/approvals/${encodeURIComponent(id)}`)}>
              Decide {visible(id)}
            </a>
          ))
        : `Done: ${done || "no call"}${approved ? `; ${approved} with an approval` : ""}`}
    </div>
  );
}

export function Chat(p: { session: string }) {
  const sessions = useLoad<{ sessions: any[] }>("/api/v1/chat/sessions", /^(chat|agent)\./, 10000);
  const log = useLoad<{ messages: any[] }>(p.session ? `/api/v1/chat/sessions/${encodeURIComponent(p.session)}/messages` : null, /^(chat|agent)\./, 10000);
  const commands = useLoad<{ commands: any[] }>("/api/v1/chat/slash-commands", /^extension\./, 60000);
  const text = useSignal("");
  const said = useSignal<{ who: string; text: string; meta?: any }[]>([]);
  const busy = useSignal(false);
  const known = (log.data?.messages ?? []).map((m) => ({ who: m.role ?? m.from ?? "", text: m.text ?? m.content ?? "", meta: m.metadata }));
  const say = async () => {
    const t = text.value.trim();
    if (!t || busy.value) return;
    busy.value = true;
    text.value = "";
    said.value = [...said.value, { who: "you", text: t }];
    try {
      const r = await post<any>("/api/v1/chat/messages", { session_id: p.session || "console", text: t });
      said.value = [...said.value, { who: "junctor", text: r.text ?? r.reply ?? r.message?.text ?? JSON.stringify(r, null, 2), meta: r.message?.metadata }];
    } catch (e) {
      const f = e as any;
      said.value = [...said.value, { who: "junctor", text: `${f.message} ${f.hint ?? ""}` }];
    }
    busy.value = false;
    sessions.reload();
    if (p.session) {
      said.value = [];
      log.reload();
    }
  };
  const hint = text.value.startsWith("/") ? (commands.data?.commands ?? []).filter((c) => c.name.startsWith(text.value.split(" ")[0])) : [];
  return (
    <>
      <Title sub="Slash commands work without a model. With one, the agent answers with the tools that it may use; what was done is below each reply, as the record has it.">Chat</Title>
      <div class="bar">
        {(sessions.data?.sessions ?? []).slice(0, 12).map((s) => (
          <a class="b" key={s.id ?? s.session_id} href={href(`/chat/${encodeURIComponent(s.id ?? s.session_id)}`)} aria-current={(s.id ?? s.session_id) === p.session ? "true" : undefined}>
            {visible(s.title ?? s.id ?? s.session_id)}
          </a>
        ))}
      </div>
      <div class="list" role="log" aria-label="Conversation">
        {[...known, ...said.value].length === 0 && <div class="empty">Nothing was said yet. Type / to see the commands.</div>}
        {[...known, ...said.value].map((m, i) => (
          <div class="msg" key={i}>
            <b>{visible(m.who)}</b>
            {visible(m.text)}
            <Deeds meta={m.meta} />
          </div>
        ))}
      </div>
      <form
        class="bar"
        onSubmit={(e) => {
          e.preventDefault();
          void say();
        }}
      >
        <input type="search" aria-label="Message" placeholder="Message, or / for commands" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
        <button class="b p" type="submit" disabled={busy.value}>
          Send
        </button>
      </form>
      {hint.length > 0 && (
        <ul class="list">
          {hint.map((c) => (
            <li class="row c-flat" key={c.name}>
              <button type="button" class="plain m" onClick={() => (text.value = `${c.name} `)}>
                {visible(c.name)}
              </button>
              <span class="who">{visible(c.summary)}</span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
