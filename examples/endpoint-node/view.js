// The view of unit-converter: an element that converts as you type. It is
// imported by the agent's page and needs nothing from it.
const METRES = { mm: 0.001, cm: 0.01, m: 1, km: 1000, in: 0.0254, ft: 0.3048, yd: 0.9144, mi: 1609.344 };

export function Converter() {
  const root = document.createElement("form");
  const value = Object.assign(document.createElement("input"), { type: "number", value: "1", step: "any" });
  const from = select("mi");
  const to = select("km");
  const out = document.createElement("output");
  const update = () => {
    out.textContent = Number(((value.valueAsNumber * METRES[from.value]) / METRES[to.value]).toPrecision(6)) + " " + to.value;
  };
  for (const el of [value, from, to]) el.addEventListener("input", update);
  root.append(value, from, to, out);
  update();
  return root;
}

function select(chosen) {
  const el = document.createElement("select");
  for (const unit of Object.keys(METRES)) el.append(new Option(unit, unit, false, unit === chosen));
  return el;
}

export default Converter;
