import { signal } from "@preact/signals";

/** An error of the server: the sentence and the hint are for people. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly reason: string,
    message: string,
    readonly hint: string,
    readonly details: Record<string, unknown>,
  ) {
    super(message);
  }
}

const key = "junctor.secret";

/** Who is signed in, and the session of this browser. Both are "" until they are known. */
export const me = signal({ principal: "", id: "" });

/** The half of the session that is not the cookie. "" means that this tab is not signed in. */
export const secret = signal(sessionStorage.getItem(key) ?? "");

export function keep(value: string): void {
  if (value) sessionStorage.setItem(key, value);
  else sessionStorage.removeItem(key);
  secret.value = value;
}

/** A decision that waits for the code from the terminal or a passkey, and how its dialog answers. */
export interface Verification {
  what: string;
  wrong: string;
  /** What the passkey is asked; null for a code. */
  options: any;
  answer(proof: string | null): void;
}

export const verification = signal<Verification | null>(null);

async function once(method: string, path: string, body: unknown, verified: string, background: boolean, accept = "application/json"): Promise<Response> {
  const headers: Record<string, string> = { Accept: accept, "Junctor-Console": secret.value };
  if (background) headers["Junctor-Background"] = "1"; // does not keep the session alive
  if (verified) headers["Junctor-Verification"] = verified;
  const init: RequestInit = { method, headers, credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    const file = body instanceof Blob;
    headers["Content-Type"] = file ? "application/zip" : "application/json";
    init.body = file ? body : JSON.stringify(body);
  }
  return fetch(path, init);
}

async function failure(r: Response): Promise<Failure> {
  let e: any = {};
  try {
    const body = await r.json();
    // The API of task agents has the members of the error at the top, and the message in error.
    e = typeof body.error === "string" ? { ...body, message: body.error } : (body.error ?? {});
  } catch {
    // A proxy in front answered; its page is not for people.
  }
  return new Failure(r.status, e.code ?? "failed", e.reason ?? "", e.message ?? `the server answered ${r.status}`, e.hint ?? "", e.details ?? {});
}

function askForProof(what: string, wrong: string, options: any): Promise<string | null> {
  return new Promise((resolve) => {
    verification.value = {
      what,
      wrong,
      options,
      answer(proof) {
        verification.value = null;
        resolve(proof);
      },
    };
  });
}

/** Calls the API. Dangerous decisions ask for the code from the terminal, or the passkey, first, unless ask is false or
 * another decision waits for its code: then they fail. */
export async function call<T = any>(method: string, path: string, body?: unknown, background = false, ask = true): Promise<T> {
  const r = await answered(method, path, body, background, ask);
  return r.status === 204 ? (undefined as T) : ((await r.json()) as T);
}

async function answered(method: string, path: string, body: unknown, background: boolean, ask: boolean, accept?: string): Promise<Response> {
  let verified = "";
  let open: { id: string; what: string; options: any } | null = null;
  for (;;) {
    const r = await once(method, path, body, verified, background, accept);
    if (r.ok) return r;
    const e = await failure(r);
    if (r.status === 401) {
      keep("");
      throw e;
    }
    let wrong = "";
    if (e.reason === "console_code_required" || e.reason === "console_passkey_required") {
      open = { id: String(e.details.verification), what: String(e.details.what), options: e.details.options ?? null };
    } else if ((e.reason === "console_code_wrong" || (e.reason === "passkey_refused" && open?.options)) && open && verified) {
      wrong = e.message;
    } else {
      throw e;
    }
    if (!ask || verification.value) throw e;
    const proof = await askForProof(open.what, wrong, open.options);
    if (proof === null) throw new Failure(0, "cancelled", "", "Nothing was decided.", "", {});
    verified = `${open.id}:${proof}`;
  }
}

export const get = <T = any>(path: string, background = false) => call<T>("GET", path, undefined, background);
export const getText = async (path: string, background = false): Promise<string> => (await answered("GET", path, undefined, background, true)).text();
const maxEvent = 4 << 20; // characters of one line

/** Posts body and passes on each event of the answer, by its name. */
export async function stream(path: string, body: unknown, each: (kind: string, value: unknown) => void): Promise<void> {
  const r = await answered("POST", path, body, false, true, "application/x-ndjson");
  const reader = r.body!.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    buffer += value ?? "";
    if (buffer.length > maxEvent) throw new Error("The answer has an event that is too long.");
    const lines = buffer.split("\n");
    buffer = lines.pop() ?? "";
    if (done && buffer) lines.push(buffer);
    for (const line of lines) if (line.trim()) for (const [kind, v] of Object.entries(JSON.parse(line))) each(kind, v);
    if (done) return;
  }
}

export const post = <T = any>(path: string, body: unknown = {}) => call<T>("POST", path, body);
export const remove = <T = any>(path: string) => call<T>("DELETE", path);
