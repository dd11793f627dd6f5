import { useSignal } from "@preact/signals";
import { me } from "./api";
import { here } from "./route";
import { useLoad, visible } from "./ui";

const isLive = (t: any) => !t.revoked && (!t.expires || Date.parse(t.expires) > Date.now());

/** Returns whose decisions a page of tools shows. Without as in the address it is the agent that called last, and the
 * caller if there is none, or if the caller may not list tokens; as is null until that is known. An empty as is the caller. */
export function usePerspective(): { as: string | null; name: string; people: string[] } {
  const given = new URLSearchParams(here.value.split("?")[1] ?? "").get("as");
  const tokens = useLoad<{ tokens: any[] }>("/api/v1/tokens", /^token\./, 60000);
  const usual = useSignal<string | null>(null); // does not change while the page is open
  const live = (tokens.data?.tokens ?? []).filter((t) => isLive(t) && t.role !== "task" && t.role !== "node");
  const agents = live.filter((t) => t.role === "agent").sort((a, b) => String(b.used ?? "").localeCompare(String(a.used ?? "")));
  if (usual.value === null && (tokens.data || tokens.error?.status)) usual.value = agents[0] ? `agent:${agents[0].name}` : "";
  const as = given ?? usual.value;
  const names = new Set([...agents, ...live.filter((t) => t.role !== "agent")].map((t) => `${t.role}:${t.name}`));
  if (as) names.add(as);
  if (as !== me.value.principal) names.delete(me.value.principal); // is "you"
  return { as, name: as ? visible(as) : "you", people: [...names] };
}
