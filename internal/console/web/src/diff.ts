/** One line of a comparison: " " is in both texts, "-" in the first, "+" in the second, "…" stands for
 * lines of both that are left out. */
export type Line = [sign: " " | "-" | "+" | "…", text: string];

const maxDistance = 2000; // lines; texts that differ more are shown one after the other
const context = 3;

/** Compares two texts line by line, with the shortest edit (Myers, 1986), and keeps three lines around each change. */
export function compare(before: string, after: string): Line[] {
  const a = before === "" ? [] : before.replace(/\n$/, "").split("\n");
  const b = after === "" ? [] : after.replace(/\n$/, "").split("\n");
  let from = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from++;
  let end = 0;
  while (end < a.length - from && end < b.length - from && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const all: Line[] = [
    ...a.slice(0, from).map((l): Line => [" ", l]),
    ...edit(a.slice(from, a.length - end), b.slice(from, b.length - end)),
    ...a.slice(a.length - end).map((l): Line => [" ", l]),
  ];
  const near = new Uint8Array(all.length);
  all.forEach(([sign], i) => {
    if (sign !== " ") near.fill(1, Math.max(0, i - context), i + context + 1);
  });
  const out: Line[] = [];
  let hidden = 0;
  const skip = () => {
    if (hidden > 0) out.push(["…", String(hidden)]);
    hidden = 0;
  };
  all.forEach((line, i) => {
    if (!near[i]) hidden++;
    else {
      skip();
      out.push(line);
    }
  });
  skip();
  return out;
}

function edit(a: string[], b: string[]): Line[] {
  const replaced = (): Line[] => [...a.map((l): Line => ["-", l]), ...b.map((l): Line => ["+", l])];
  if (a.length === 0 || b.length === 0) return replaced();
  const max = Math.min(a.length + b.length, maxDistance);
  const trace: Int32Array[] = [];
  const v = new Int32Array(2 * max + 2);
  for (let d = 0; d <= max; d++) {
    trace.push(v.slice(max - d, max + d + 2));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && v[max + k - 1] < v[max + k + 1]) ? v[max + k + 1] : v[max + k - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      v[max + k] = x;
      if (x >= a.length && x - k >= b.length) return walk(a, b, trace);
    }
  }
  return replaced();
}

/** Follows the furthest paths back from the end; trace[d] holds the diagonals -d to d+1 before step d. */
function walk(a: string[], b: string[], trace: Int32Array[]): Line[] {
  const out: Line[] = [];
  let x = a.length;
  let y = b.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const v = (k: number) => trace[d][k + d] ?? 0;
    const k = x - y;
    const down = k === -d || (k !== d && v(k - 1) < v(k + 1));
    // Where the equal lines of this step begin.
    const beginX = d === 0 ? 0 : down ? v(k + 1) : v(k - 1) + 1;
    for (; x > beginX; x--, y--) out.push([" ", a[x - 1]]);
    if (d === 0) break;
    if (down) out.push(["+", b[--y]]);
    else out.push(["-", a[--x]]);
  }
  return out.reverse();
}
