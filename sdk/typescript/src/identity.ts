/** The key of a node, the folder that stores it, and the requests that a node makes to a gateway over HTTP. */
import { createHash, randomUUID } from "node:crypto";
import { chmod, mkdir, open, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type ErrorCode, errorFromJSON, isObject, JunctorError } from "./errors.js";
import { bodyOf } from "./internal.js";

/** Signs with the key of a node. */
export interface NodeKey {
  /** The public key, U…. */
  publicKey: string;
  /** The seed, for the handshake. */
  seed: Uint8Array;
  sign(data: Uint8Array): Uint8Array;
}

/** What a folder stores about a node beside its key. */
export interface Identity {
  node_id: string;
  gateway?: string;
  public_key?: string;
  /** The labels that the token granted. */
  labels?: string[];
  enrolled?: boolean;
}

/** Bounds of requests to a gateway. */
const webTimeout = 15_000;
const assetTimeout = 10 * 60_000;
const maxAnswer = 64 << 10;
/** The largest asset in bytes. */
export const maxAsset = 64 << 20;

function errno(thrown: unknown): string | undefined {
  return isObject(thrown) && typeof thrown.code === "string" ? thrown.code : undefined;
}

async function writeSecret(path: string, text: string): Promise<void> {
  const temporary = `${path}.${randomUUID()}`;
  await writeFile(temporary, text, { mode: 0o600, flag: "wx" });
  await rename(temporary, path);
}

/** The folder of one node: its key, its id, and a mark of the process that uses it. */
export class Folder {
  readonly #dir: string;

  private constructor(dir: string) {
    this.#dir = dir;
  }

  /** Opens a folder, and creates it if it does not exist. Error: conflict if another process has it open. */
  static async open(dir: string): Promise<Folder> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const mark = join(dir, "node.pid");
    for (let attempt = 0; ; attempt++) {
      try {
        const file = await open(mark, "wx", 0o600);
        await file.writeFile(`${process.pid}\n`);
        await file.close();
        return new Folder(dir);
      } catch (thrown) {
        if (errno(thrown) !== "EEXIST" || attempt > 0)
          throw new JunctorError("failed", "the folder of the node cannot be used", { cause: thrown });
      }
      const pid = Number(await readFile(mark, "utf8").catch(() => ""));
      if (pid > 0 && pid !== process.pid && isRunning(pid)) {
        throw new JunctorError("conflict", `process ${pid} is the node of this folder already`, { reason: "node_running" });
      }
      if (pid === process.pid)
        throw new JunctorError("conflict", "this process has a node of this folder already", { reason: "node_running" });
      await rm(mark, { force: true });
    }
  }

  /** Returns the stored identity, or that of a new node if the id is another one. */
  async identity(id: string | undefined, fallback: string): Promise<Identity> {
    let text: string;
    try {
      text = await readFile(join(this.#dir, "state.json"), "utf8");
    } catch (thrown) {
      if (errno(thrown) === "ENOENT") return { node_id: id ?? fallback };
      throw new JunctorError("failed", "the file state.json of the node's folder cannot be read", { cause: thrown });
    }
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      value = undefined;
    }
    if (!isObject(value) || typeof value.node_id !== "string") {
      throw new JunctorError("failed", "the file state.json of the node's folder cannot be read", {
        hint: "remove it to enrol the node again",
      });
    }
    return id !== undefined && id !== value.node_id ? { node_id: id } : (value as unknown as Identity);
  }

  /** Stores the identity. */
  async save(identity: Identity): Promise<void> {
    await writeSecret(join(this.#dir, "state.json"), JSON.stringify(identity, null, 2) + "\n");
  }

  /** Returns the key, and creates it if it does not exist. Error: denied, reason key_exposed, if other users may read it. */
  async key(): Promise<NodeKey> {
    const nkeys = await import("@nats-io/nkeys");
    const path = join(this.#dir, "key");
    let seed: Uint8Array;
    try {
      if (process.platform !== "win32" && ((await stat(path)).mode & 0o077) !== 0) {
        throw new JunctorError("denied", "other users may read the key of the node", {
          reason: "key_exposed",
          hint: "chmod 600 the file key in the node's folder",
        });
      }
      seed = new TextEncoder().encode((await readFile(path, "utf8")).trim());
    } catch (thrown) {
      if (thrown instanceof JunctorError || errno(thrown) !== "ENOENT") throw thrown;
      seed = nkeys.createUser().getSeed();
      await writeSecret(path, new TextDecoder().decode(seed) + "\n");
      await chmod(path, 0o600);
    }
    try {
      const pair = nkeys.fromSeed(seed);
      return { publicKey: pair.getPublicKey(), seed, sign: (data) => pair.sign(data) };
    } catch {
      throw new JunctorError("failed", "the key of the node cannot be read");
    }
  }

  /** Releases the folder. */
  async close(): Promise<void> {
    await rm(join(this.#dir, "node.pid"), { force: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (thrown) {
    return errno(thrown) === "EPERM";
  }
}

/** The HTTP side of a gateway for one node. */
export class Web {
  /** @param clock returns the time of the gateway in milliseconds */
  constructor(base: string, node: string, key: NodeKey | undefined, token: string, clock: () => number) {
    this.#base = base;
    this.#node = node;
    this.#key = key;
    this.#token = token;
    this.#clock = clock;
  }

  readonly #base: string;
  readonly #node: string;
  readonly #key: NodeKey | undefined;
  readonly #token: string;
  readonly #clock: () => number;

  /** Registers the key with the gateway, and returns the labels that the token grants. */
  async enrol(signal: AbortSignal): Promise<string[]> {
    const body = JSON.stringify({ node_id: this.#node, public_key: this.#key?.publicKey });
    const headers = { "content-type": "application/json", authorization: "Bearer " + this.#token };
    const response = await this.#send("POST", "/nodes/enroll", headers, body, webTimeout, signal);
    const text = await bodyOf(response, maxAnswer);
    if (response.status !== 200) throw refusal(response.status, text);
    let reply: unknown;
    try {
      reply = JSON.parse(text);
    } catch {
      reply = undefined;
    }
    if (!isObject(reply) || reply.node_id !== this.#node) {
      throw new JunctorError("invalid_input", "the server at this address is not a gateway for nodes", {
        hint: "check the URL: it is that of a junctor server",
      });
    }
    return Array.isArray(reply.labels) ? reply.labels.filter((l): l is string => typeof l === "string") : [];
  }

  /** Stores bytes at the gateway, and returns the reference to them. */
  async put(data: Uint8Array, mediaType: string, signal: AbortSignal): Promise<{ $asset: Record<string, unknown> }> {
    if (data.byteLength > maxAsset)
      throw new JunctorError("too_large", `the value has ${data.byteLength} bytes; the limit is ${maxAsset}`, {
        reason: "payload_too_large",
      });
    const digest = createHash("sha256").update(data).digest("hex");
    const path = "/nodes/assets/" + digest;
    const response = await this.#send(
      "PUT",
      path,
      { ...this.#authorization("PUT", path), "content-type": mediaType },
      data,
      assetTimeout,
      signal,
    );
    const text = await bodyOf(response, maxAnswer);
    if (response.status >= 300) throw refusal(response.status, text);
    return { $asset: { digest: "sha256:" + digest, size: data.byteLength, media_type: mediaType } };
  }

  /** Returns the bytes of an asset. Its size and digest are checked. */
  async get(reference: unknown, signal: AbortSignal): Promise<{ data: Uint8Array; mediaType: string }> {
    const asset = isObject(reference) && isObject(reference.$asset) ? reference.$asset : {};
    const hex = /^sha256:([0-9a-f]{64})$/.exec(String(asset.digest))?.[1];
    const size = Number(asset.size);
    if (!hex || !Number.isInteger(size) || size < 0 || size > maxAsset)
      throw new JunctorError("invalid_input", "the reference to an asset is malformed", { reason: "bad_encoding" });
    const path = "/nodes/assets/" + hex;
    const response = await this.#send("GET", path, this.#authorization("GET", path), undefined, assetTimeout, signal);
    if (response.status !== 200) throw refusal(response.status, await bodyOf(response, maxAnswer));
    const chunks: Uint8Array[] = [];
    let have = 0;
    for await (const chunk of response.body ?? []) {
      if ((have += chunk.byteLength) > size) break;
      chunks.push(chunk);
    }
    const data = Buffer.concat(chunks);
    if (have !== size || createHash("sha256").update(data).digest("hex") !== hex) {
      throw new JunctorError("failed", "the asset that arrived is not the one of the reference", { reason: "digest_mismatch" });
    }
    return { data, mediaType: typeof asset.media_type === "string" ? asset.media_type : "" };
  }

  #authorization(method: string, path: string): Record<string, string> {
    if (!this.#key) return { authorization: "Bearer " + this.#token, "junctor-node": this.#node };
    const proof = { node: this.#node, ts: Math.floor(this.#clock() / 1000), nonce: randomUUID() };
    const first = Buffer.from(JSON.stringify(proof)).toString("base64url");
    const signed = this.#key.sign(Buffer.from(`junctor-node-request-v1\n${method}\n${path}\n${first}\n`));
    return { authorization: `Node ${first}.${Buffer.from(signed).toString("base64url")}` };
  }

  async #send(
    method: string,
    path: string,
    headers: Record<string, string>,
    body: string | Uint8Array | undefined,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<Response> {
    try {
      // A redirect would send the credential elsewhere.
      return await fetch(this.#base + path, {
        method,
        headers,
        body: (body as BodyInit | undefined) ?? null,
        redirect: "manual",
        signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
      });
    } catch (cause) {
      if (signal.aborted) throw new JunctorError("cancelled", "the request was cancelled", { cause });
      throw new JunctorError("unavailable", `the gateway ${new URL(this.#base).host} is not reached`, {
        reason: "connection_failed",
        cause,
      });
    }
  }
}

/** Returns the error of a gateway. Its code is that of the status. */
function refusal(status: number, text: string): JunctorError {
  const codes: Record<number, ErrorCode> = {
    400: "invalid_input",
    401: "unauthenticated",
    403: "denied",
    404: "not_found",
    409: "conflict",
    413: "too_large",
    429: "overloaded",
  };
  const code = codes[status] ?? (status >= 500 ? "unavailable" : "failed");
  let given: JunctorError | undefined;
  try {
    const value: unknown = JSON.parse(text);
    given = isObject(value) ? errorFromJSON(value.error) : undefined;
  } catch {
    given = undefined;
  }
  if (!given) return new JunctorError(code, `the gateway answered with status ${status}`);
  return new JunctorError(code, given.message.slice(0, 1000), { reason: given.reason, hint: given.hint.slice(0, 1000) });
}
