import { post } from "./api";
import { visible } from "./ui";

export interface Shown {
  name?: string;
  value: string;
  bytes?: number;
  sha256?: string;
}

export interface Choice {
  n: number;
  label: string;
  description?: string;
  effect: string;
}

export interface Question {
  id: string;
  text: string;
  choices?: Choice[];
  multiple?: boolean;
  free_text?: boolean;
  secret?: boolean;
}

export interface Approval {
  id: string;
  kind: string;
  principal: string;
  on_behalf_of?: string;
  capability: string;
  module?: string;
  session?: string;
  permissions?: string[];
  effect: string;
  summary: string;
  shown?: { argv?: Shown[]; details?: Shown[]; members?: Shown[]; choices?: Choice[]; questions?: Question[] };
  state: string;
  decision?: string;
  decided_by?: string;
  asked: string;
  decided?: string;
  expires?: string;
  input_digest: string;
  barred?: string;
}

export const pendingPath = "/api/v1/approvals?state=pending";

/** The name that people know of a capability's id or action, such as files/write_file for
 * mcp.files/write_file#ext.mcp.files.write_file@default. */
export function toolOf(capability: string): string {
  const action = (capability.split("#")[1] ?? capability).replace(/@[^@]*$/, "");
  const mcp = /^ext\.(?:mcp|a2a)\.([^.]+)\.(.+)$/.exec(action);
  if (mcp) return visible(`${mcp[1]}/${mcp[2]}`);
  const remote = /^ext\.remote\.([^.]+)\.action\.(.+)$/.exec(action);
  return visible(remote ? `${remote[1]}/${remote[2]}` : action);
}

export const decide = (id: string, decision: string) => post(`/api/v1/approvals/${encodeURIComponent(id)}`, { decision });

/** The principal that asks, and the one for whom it acts. */
export function actor(a: { principal: string; on_behalf_of?: string }): string {
  if (!a.on_behalf_of) return a.principal;
  return a.principal.startsWith("task:chat-") ? `the agent of ${a.on_behalf_of}` : `${a.principal} for ${a.on_behalf_of}`;
}
