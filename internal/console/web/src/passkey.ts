import { post } from "./api";

/** Whether this browser has passkeys with the functions that are used here. */
export const offered = (): boolean => typeof PublicKeyCredential !== "undefined" && "parseRequestOptionsFromJSON" in PublicKeyCredential;

/** Signs a decision with a passkey. It returns the response as base64url. */
export async function sign(options: any): Promise<string> {
  const got = await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
  if (!got) throw new Error("The browser gave no passkey.");
  const json = JSON.stringify((got as PublicKeyCredential).toJSON());
  return btoa(json).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Adds a passkey of this browser or of a key that the person holds. */
export async function add(name: string): Promise<void> {
  const begun = await post("/api/v1/console/passkeys/options");
  const made = await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(begun.options) });
  if (!made) throw new Error("The browser made no passkey.");
  await post("/api/v1/console/passkeys", { id: begun.id, name, response: (made as PublicKeyCredential).toJSON() });
}
