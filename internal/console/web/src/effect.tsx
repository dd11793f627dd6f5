import { type Meaning, Tag, visible } from "./ui";

/** Effects by the value of the API: the word of a row, and the sentence of a decision. */
const effects: Record<string, [word: string, sentence: string, is?: Meaning]> = {
  read: ["reads", "reads, and changes nothing"],
  write: ["changes", "changes what is stored"],
  external: ["acts outside", "acts outside junctor, and may not be undone", "wait"],
  admin: ["administers", "changes junctor itself, or what others may do", "wait"],
  destructive: ["destroys", "removes or overwrites something, and cannot be undone", "bad"],
};

/** The effects that the API filters by. */
export const filterEffects = ["read", "write", "external", "admin"];

/** What an effect means, in a word or as a sentence. One that is not known here is shown as it is. */
export const effectWords = (effect: string, sentence = false) => (Object.hasOwn(effects, effect) ? effects[effect][sentence ? 1 : 0] : visible(effect));

/** An effect in words; its value, as the API and the rules have it, appears when a person points at it. */
export function Effect(p: { of: string; is?: Meaning }) {
  return (
    <span class="eff" title={visible(p.of)}>
      <Tag is={p.is ?? (Object.hasOwn(effects, p.of) ? effects[p.of][2] : "")}>{effectWords(p.of)}</Tag>
    </span>
  );
}
