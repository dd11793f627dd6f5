/** The class of a failure. The reason of an error is more specific. */
export type ErrorCode =
  | "unauthenticated"
  | "denied"
  | "approval_required"
  | "invalid_input"
  | "too_large"
  | "unknown_capability"
  | "not_found"
  | "conflict"
  | "selection_required"
  | "slot_conflict"
  | "unavailable"
  | "overloaded"
  | "timeout"
  | "cancelled"
  | "failed"
  | "internal";

/** The sixteen codes, in a fixed order. */
export const errorCodes: readonly ErrorCode[] = [
  "unauthenticated",
  "denied",
  "approval_required",
  "invalid_input",
  "too_large",
  "unknown_capability",
  "not_found",
  "conflict",
  "selection_required",
  "slot_conflict",
  "unavailable",
  "overloaded",
  "timeout",
  "cancelled",
  "failed",
  "internal",
];

/** The fields of a {@link JunctorError} beside its code and message. */
export interface ErrorFields {
  /** A specific reason below the code, in lower_snake; it may be empty. */
  reason?: string;
  /** How the caller can proceed; it may be empty. */
  hint?: string;
  /** Further facts, such as the id of an approval. */
  details?: Record<string, unknown>;
  /** How long to wait before the next attempt, in milliseconds; 0 if the error has no delay. */
  retryAfter?: number;
  /** The cause. It is never sent to another process. */
  cause?: unknown;
}

/** The error of every failed operation of this package. Its text contains no credentials. */
export class JunctorError extends Error {
  override readonly name: string = "JunctorError";
  /** The class of the failure. */
  readonly code: ErrorCode;
  /** A specific reason below the code; it may be empty. */
  readonly reason: string;
  /** How the caller can proceed; it may be empty. */
  readonly hint: string;
  /** Further facts, such as the id of an approval. */
  readonly details: Record<string, unknown>;
  /** How long to wait before the next attempt, in milliseconds; 0 if the error has no delay. */
  readonly retryAfter: number;

  /** Returns an error with a code, a message for people, and further fields. */
  constructor(code: ErrorCode, message: string, fields: ErrorFields = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.code = code;
    this.reason = fields.reason ?? "";
    this.hint = fields.hint ?? "";
    this.details = fields.details ?? {};
    this.retryAfter = fields.retryAfter ?? 0;
  }

  /** Returns the JSON form of the error, without the stack and the cause. */
  toJSON(): Record<string, unknown> {
    return {
      code: this.code,
      message: this.message,
      ...(this.reason && { reason: this.reason }),
      ...(this.hint && { hint: this.hint }),
      ...(Object.keys(this.details).length > 0 && { details: this.details }),
      ...(this.retryAfter > 0 && { retry_after_ms: this.retryAfter }),
    };
  }
}

/** The longest delay in milliseconds that a peer may request, one day. */
const maxRetryAfter = 24 * 3600 * 1000;

/** Reports whether a value is an object and not an array. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns the error of a JSON document, or undefined if the document does not describe one. */
export function errorFromJSON(value: unknown): JunctorError | undefined {
  if (!isObject(value) || typeof value.code !== "string") return undefined;
  const code = errorCodes.find((c) => c === value.code) ?? "failed";
  const text = (x: unknown) => (typeof x === "string" ? x : "");
  const delay = typeof value.retry_after_ms === "number" ? value.retry_after_ms : 0;
  return new JunctorError(code, text(value.message) || code, {
    reason: text(value.reason),
    hint: text(value.hint),
    details: isObject(value.details) ? value.details : {},
    retryAfter: Math.min(Math.max(delay, 0), maxRetryAfter),
  });
}

/** Returns any thrown value as a JunctorError: itself, a cancellation, a timeout, or failed with the value as its cause. */
export function asError(thrown: unknown, message: string): JunctorError {
  if (thrown instanceof JunctorError) return thrown;
  if (thrown instanceof Error && thrown.name === "TimeoutError")
    return new JunctorError("timeout", "the deadline passed before the work was done", { cause: thrown });
  if (thrown instanceof Error && thrown.name === "AbortError")
    return new JunctorError("cancelled", "the request was cancelled", { cause: thrown });
  return new JunctorError("failed", message, { cause: thrown });
}
