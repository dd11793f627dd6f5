import { ZONES } from "./zones.js";

export function Clocks() {
  const root = document.createElement("ul");
  for (const timeZone of ZONES) {
    const item = document.createElement("li");
    item.textContent = new Date().toLocaleTimeString(undefined, { timeZone });
    root.append(item);
  }
  return root;
}
