// The view of the reference endpoint's notes: one list that refreshes itself.
// It knows nothing of the host but a function that fetches the notes.

/** Builds one list item; text is set as text, never as markup. */
function item(document, note) {
  const li = document.createElement('li');
  li.dataset.id = note.id;
  li.textContent = note.text;
  for (const tag of note.tags ?? []) {
    const mark = document.createElement('small');
    mark.textContent = ` #${tag}`;
    li.append(mark);
  }
  return li;
}

/**
 * Mounts the list into an element and returns a function that unmounts it.
 * options.load resolves to {notes: [{id, text, tags}]}; options.every is the
 * refresh interval in milliseconds.
 */
export function mount(element, { load, every = 5000 }) {
  const document = element.ownerDocument;
  const list = document.createElement('ul');
  const state = document.createElement('p');
  element.replaceChildren(state, list);
  let timer;
  let stopped = false;

  async function refresh() {
    try {
      const { notes } = await load();
      if (stopped) return;
      list.replaceChildren(...notes.map((note) => item(document, note)));
      state.textContent = notes.length === 1 ? '1 note' : `${notes.length} notes`;
    } catch (error) {
      if (!stopped) state.textContent = `Notes are not available: ${error.message}`;
    }
    if (!stopped) timer = setTimeout(refresh, every);
  }

  refresh();
  return () => {
    stopped = true;
    clearTimeout(timer);
    element.replaceChildren();
  };
}

export default mount;
