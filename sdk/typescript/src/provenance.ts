import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { isObject, JunctorError } from "./errors.js";
import { decodeModule } from "./router.js";
import { manifestOf, type Module } from "./module.js";

/** The signed origin of a module. */
export interface Provenance {
  issuer: string;
  subject: string;
  /** SHA-256 of the manifest, 64 hexadecimal digits. */
  digestSha256: string;
  /** Ed25519. */
  signatureAlgorithm: string;
  /** The signature in base64. */
  signature: string;
}

/** The two digests that a provenance may contain, as lower-case hex. */
export interface Digests {
  /** Of the form of elizaOS, with member names in the order of the root collation. */
  original: string;
  /** Of the canonical form of RFC 8785. */
  rfc8785: string;
}

const collator = new Intl.Collator("und");

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Returns a value whose objects have their members in an order. */
function sorted(value: unknown, order: (a: string, b: string) => number): unknown {
  if (Array.isArray(value)) return value.map((item) => sorted(item, order));
  if (!isObject(value)) return value;
  const out: Record<string, unknown> = {};
  for (const name of Object.keys(value).sort(order)) {
    // A plain assignment would lose a member named __proto__.
    Object.defineProperty(out, name, { value: sorted(value[name], order), enumerable: true, configurable: true, writable: true });
  }
  return out;
}

/** Returns the text of a value in the canonical form of RFC 8785. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return "[" + value.map(canonical).join(",") + "]";
  if (!isObject(value)) return JSON.stringify(value);
  // JavaScript compares strings by UTF-16 code units, as RFC 8785 requires.
  return (
    "{" +
    Object.keys(value)
      .sort()
      .map((name) => JSON.stringify(name) + ":" + canonical(value[name]))
      .join(",") +
    "}"
  );
}

/** Returns the digests of a manifest. Both cover it without capabilityEndpointId and provenance. */
export function digests(manifest: Record<string, unknown>): Digests {
  const { capabilityEndpointId: _, provenance: __, ...bare } = decodeModule(manifest);
  return { original: hash(JSON.stringify(sorted(bare, collator.compare))), rfc8785: hash(canonical(bare)) };
}

function signedBytes(p: Pick<Provenance, "issuer" | "subject" | "digestSha256">): Buffer {
  return Buffer.from(`issuer:${p.issuer}\nsubject:${p.subject}\ndigestSha256:${p.digestSha256.toLowerCase()}`);
}

/** Returns an Ed25519 key from PEM. The error does not contain the text. */
function keyOf(pem: string | KeyObject, read: (pem: string) => KeyObject, what: string): KeyObject {
  let key: KeyObject;
  try {
    key = typeof pem === "string" ? read(pem) : pem;
  } catch {
    throw new JunctorError("invalid_input", `the ${what} is not PEM`);
  }
  if (key.asymmetricKeyType !== "ed25519") throw new JunctorError("invalid_input", `the ${what} is not an Ed25519 key`);
  return key;
}

/**
 * Returns a copy of a module with a signed provenance. The key is an Ed25519 private key, as PEM or as an object of
 * node:crypto. It signs the digest of the original form, which every router accepts, unless form is "rfc8785".
 */
export function signModule(
  module: Module,
  options: { issuer: string; subject: string; privateKey: string | KeyObject; form?: "original" | "rfc8785" },
): Module {
  const key = keyOf(options.privateKey, createPrivateKey, "private key");
  if (/[\r\n]/.test(options.issuer + options.subject))
    throw new JunctorError("invalid_input", "issuer and subject must be one line of text each");
  const digestSha256 = digests(manifestOf({ ...module, provenance: undefined }))[options.form ?? "original"];
  const about = { issuer: options.issuer, subject: options.subject, digestSha256 };
  const signature = sign(null, signedBytes(about), key).toString("base64");
  return { ...module, provenance: { ...about, signatureAlgorithm: "Ed25519", signature } };
}

/**
 * Reports why the provenance of a manifest does not verify with the issuer's public key (PEM), or returns undefined. The
 * digest may be that of either form.
 */
export function verifyManifest(manifest: Record<string, unknown>, publicKey: string | KeyObject): string | undefined {
  const key = keyOf(publicKey, createPublicKey, "public key");
  const p = decodeModule(manifest).provenance as Provenance | undefined;
  if (!p) return "the manifest is not signed";
  if (p.signatureAlgorithm.toLowerCase() !== "ed25519") return "the signature algorithm is not Ed25519";
  if (!verify(null, signedBytes(p), key, Buffer.from(p.signature, "base64"))) return `the signature of ${p.issuer} does not fit`;
  const have = digests(manifest);
  return p.digestSha256 === have.original || p.digestSha256 === have.rfc8785 ? undefined : "the manifest is not the one that was signed";
}
