import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";

/** A terminal on the page. */
export interface Screen {
  replace(data: string, cols: number, rows: number): void;
  write(data: string): void;
  resize(cols: number, rows: number): void;
  onKeys(f: (data: string) => void): void;
  size(): { cols: number; rows: number };
  focus(): void;
  close(): void;
}

/** Styles that a script makes need the nonce of the page, which xterm does not set. */
function withNonce<T>(f: () => T): T {
  const nonce = document.querySelector<HTMLMetaElement>("meta[name=junctor-nonce]")?.content ?? "";
  const create = document.createElement;
  document.createElement = function (this: Document, tag: string, options?: ElementCreationOptions) {
    const e = create.call(this, tag, options);
    if (tag.toLowerCase() === "style") (e as HTMLStyleElement).nonce = nonce;
    return e;
  } as typeof document.createElement;
  try {
    return f();
  } finally {
    document.createElement = create;
  }
}

export function open(parent: HTMLElement): Screen {
  const term = new Terminal({ cols: 120, rows: 32, scrollback: 5000, fontSize: 12, fontFamily: "ui-monospace, Menlo, Consolas, monospace", theme: { background: "#101110", foreground: "#d7d8d2" }, screenReaderMode: true, allowProposedApi: false });
  const fit = new FitAddon();
  term.loadAddon(fit);
  withNonce(() => term.open(parent));
  // Where the page shows a part of the screen only, as on a phone, it shows the part with the cursor.
  let due = false;
  term.onCursorMove(() => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      const row = (term.element?.clientHeight ?? 0) / term.rows;
      if (parent.scrollHeight > parent.clientHeight) parent.scrollTop = (term.buffer.active.cursorY + 2) * row - parent.clientHeight;
    });
  });
  return {
    replace(data, cols, rows) {
      term.reset();
      term.resize(cols, rows);
      term.write(data);
    },
    write: (data) => term.write(data),
    resize: (cols, rows) => term.write("", () => term.resize(cols, rows)), // after what was written before
    onKeys: (f) => void term.onData(f),
    size: () => fit.proposeDimensions() ?? { cols: term.cols, rows: term.rows },
    focus: () => term.focus(),
    close: () => term.dispose(),
  };
}
