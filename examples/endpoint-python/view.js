// The view of word-count: a text area that counts as you type. It is imported by
// the agent's page and needs nothing from it.
export function WordCount() {
  const root = document.createElement("div");
  const area = document.createElement("textarea");
  const out = document.createElement("output");
  const update = () => {
    const words = area.value.toLowerCase().match(/\p{L}+/gu) ?? [];
    out.textContent = `${words.length} words, ${new Set(words).size} of them different`;
  };
  area.addEventListener("input", update);
  root.append(area, out);
  update();
  return root;
}

export default WordCount;
