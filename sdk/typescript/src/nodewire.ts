/** The wire of nodes: errors, values and subjects. */
import { type ErrorCode, errorCodes, isObject, JunctorError } from "./errors.js";

const maxMessage = 4 << 10;

/** The reasons of the wire, with the code of each. */
export const reasons: Record<string, ErrorCode> = {
  function_not_found: "unknown_capability",
  node_overloaded: "overloaded",
  invalid_params: "invalid_input",
  timeout: "timeout",
  cancelled: "cancelled",
  execution_failed: "failed",
  payload_too_large: "too_large",
  denied: "denied",
  consent_required: "approval_required",
  consent_denied: "denied",
  connection_failed: "unavailable",
  bad_encoding: "invalid_input",
  unsupported_version: "invalid_input",
  no_available_nodes: "unavailable",
  node_lost: "failed",
  reserved_function: "denied",
  digest_mismatch: "invalid_input",
};

/** The functions of the protocol with which a gateway puts skills on a node. */
export const reserved = new Set([
  "device.install_remote_skill",
  "device.uninstall_remote_skill",
  "device.list_installed_skills",
  "device.list_node_functions",
  "device.get_capability_host_status",
]);

/** The reason of the wire for a code. */
export const nearest: Partial<Record<ErrorCode, string>> = {
  unauthenticated: "denied",
  denied: "denied",
  approval_required: "consent_required",
  invalid_input: "invalid_params",
  not_found: "invalid_params",
  too_large: "payload_too_large",
  unknown_capability: "function_not_found",
  overloaded: "node_overloaded",
  unavailable: "no_available_nodes",
  timeout: "timeout",
  cancelled: "cancelled",
};

/** The classes of errors that older clients match. */
export const errorTypes: Record<string, string> = {
  function_not_found: "FunctionNotFoundError",
  node_overloaded: "RemoteExecutionError",
  invalid_params: "ValueError",
  timeout: "TimeoutError",
  execution_failed: "RemoteExecutionError",
  payload_too_large: "SerializationError",
  bad_encoding: "SerializationError",
  denied: "PermissionError",
  consent_required: "PermissionError",
  no_available_nodes: "NoAvailableNodesError",
  connection_failed: "ConnectionError",
};

/** Returns an error with a reason of the wire and the code of that reason. */
export function problem(reason: string, message: string, retryAfter = 0): JunctorError {
  return new JunctorError(reasons[reason] ?? "internal", message, { reason, retryAfter });
}

/** Returns the first bytes of a text that fit the limit of messages. */
export function clip(text: string): string {
  const bytes = Buffer.from(text);
  return bytes.byteLength <= maxMessage
    ? text
    : bytes
        .subarray(0, maxMessage - 4)
        .toString()
        .replace(/\ufffd$/, "") + "…";
}

/** Returns the JSON of a value, in which bytes are {"$bytes": base64}. */
export function encode(value: unknown): string {
  const text = JSON.stringify(value ?? null, function (this: Record<string, unknown>, name: string, member: unknown) {
    if (typeof member !== "object" || member === null) return member;
    const given = this[name];
    return given instanceof Uint8Array
      ? { $bytes: Buffer.from(given.buffer, given.byteOffset, given.byteLength).toString("base64") }
      : member;
  });
  if (text === undefined) throw problem("bad_encoding", "the value cannot be written as JSON");
  return text;
}

/** Returns a value with bytes in place of {"$bytes": base64}. */
export function decodeBytes(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(decodeBytes);
  if (!isObject(value)) return value;
  if (typeof value.$bytes === "string" && Object.keys(value).length === 1) return new Uint8Array(Buffer.from(value.$bytes, "base64"));
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, decodeBytes(member)]));
}

/** Returns a text as one part of a subject. */
export function subjectToken(text: string): string {
  return text.replace(/[^A-Za-z0-9_-]/g, (c) =>
    [...Buffer.from(c)].map((b) => "=" + b.toString(16).toUpperCase().padStart(2, "0")).join(""),
  );
}

/** The reply to a join. */
export interface JoinReply {
  epoch: number;
  heartbeat_ms: number;
  max_inline: number;
  window: number;
  server_time?: string;
}

/** Returns the error of a gateway in the form of the wire. */
export function wireError(error: unknown): JunctorError {
  if (!isObject(error)) return problem("bad_encoding", "the gateway's answer cannot be read");
  const details = isObject(error.details) ? error.details : {};
  const code = typeof error.code === "string" ? error.code : "execution_failed";
  const reason = typeof details.reason === "string" ? details.reason : typeof error.reason === "string" ? error.reason : code;
  return new JunctorError(reasons[code] ?? nearestCode(code), clip(String(error.message ?? code)), {
    reason,
    details,
    hint: typeof error.hint === "string" ? error.hint : "",
    retryAfter: Math.min(Math.max(Number(error.retry_after_ms ?? 0) || 0, 0), 24 * 3600 * 1000),
  });
}

function nearestCode(code: string): ErrorCode {
  return errorCodes.find((c) => c === code) ?? "failed";
}
