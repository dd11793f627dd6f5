// The worker that all tabs of one browser share. It reads the server's feed once for all of them
// and gives the session's secret to new tabs, which have a storage of their own.

const ports = new Set<MessagePort>();
let secret = "";
let running: AbortController | null = null;
let last = "";

function tell(message: unknown): void {
  for (const p of ports) p.postMessage(message);
}

function start(value: string): void {
  if (value === secret && (running || !value)) return;
  secret = value;
  running?.abort();
  running = null;
  if (secret) {
    running = new AbortController();
    void run(running.signal);
  }
}

async function run(signal: AbortSignal): Promise<void> {
  let wait = 500;
  while (!signal.aborted) {
    try {
      const headers: Record<string, string> = { Accept: "text/event-stream", "Junctor-Console": secret, "Junctor-Background": "1" };
      if (last) headers["Last-Event-ID"] = last;
      const r = await fetch("/api/v1/events", { headers, credentials: "same-origin", cache: "no-store", signal });
      if (r.status === 401) {
        secret = "";
        running = null;
        tell({ kind: "ended" });
        return;
      }
      if (!r.ok || !r.body) throw new Error(String(r.status));
      wait = 500;
      tell({ kind: "alive" });
      await read(r.body);
    } catch {
      // The server is away; the loop tries again.
    }
    if (signal.aborted) return;
    tell({ kind: "down" });
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 4000); // so that the page is live again five seconds after the server
  }
}

async function read(body: ReadableStream<Uint8Array>): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    if (buffer.length > 4 << 20) throw new Error("an event is too long");
    let end: number;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const block = buffer.slice(0, end);
      buffer = buffer.slice(end + 2);
      let type = "message";
      let data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) type = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
        else if (line.startsWith("id: ")) last = line.slice(4);
      }
      if (!data) {
        tell({ kind: "alive" });
        continue;
      }
      try {
        const parsed = JSON.parse(data);
        tell({ kind: "event", event: { type: parsed.type ?? type, data: parsed.data ?? parsed } });
      } catch {
        tell({ kind: "alive" });
      }
    }
  }
}

(self as any).onconnect = (e: MessageEvent) => {
  const port = e.ports[0];
  ports.add(port);
  port.onmessage = (m) => {
    switch (m.data.kind) {
      case "hello":
        if (m.data.secret) start(m.data.secret);
        port.postMessage({ kind: "secret", secret });
        break;
      case "session":
        start(m.data.secret);
        for (const p of ports) if (p !== port) p.postMessage(m.data.secret ? { kind: "secret", secret } : { kind: "ended" });
        break;
      case "bye":
        ports.delete(port);
    }
  };
  port.start();
};
