/** Functions that several parts of the package use. They run in every runtime with fetch. */
import { asError, JunctorError } from "./errors.js";

/** Returns a token that can be part of a header. Error: invalid_input, which does not contain the token. */
export function checkToken(token: string): string {
  token = token.trim();
  if (token !== "" && !/^[\x21-\x7e]+$/.test(token)) {
    throw new JunctorError("invalid_input", "the token contains characters that a header cannot have");
  }
  return token;
}

/** Returns the error of an answer that is too large. */
export function tooLarge(max: number): JunctorError {
  return new JunctorError("too_large", `the answer is larger than ${max} bytes`);
}

/** Returns the text of an answer of at most max bytes. */
export async function bodyOf(response: Response, max: number): Promise<string> {
  if (!response.body) return "";
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for await (const chunk of response.body) {
    size += chunk.byteLength;
    if (size > max) throw tooLarge(max); // leaving the loop cancels the body
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}

/** Waits for a time. Error: cancelled if signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(asError(signal?.reason, "the wait was cancelled"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}
