// The view of world-clock: one line for each zone, kept up to date. It is
// imported by the agent's page and needs nothing from it but, if it likes, other
// zones.
const ZONES = ["UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York"];

/** Returns an element; it stops by itself once it has left the page. */
export function Clocks({ zones = ZONES } = {}) {
  const root = document.createElement("dl");
  const faces = zones.map((zone) => {
    const face = document.createElement("dd");
    root.append(Object.assign(document.createElement("dt"), { textContent: zone }), face);
    const format = new Intl.DateTimeFormat(undefined, { timeZone: zone, timeStyle: "medium" });
    return () => { face.textContent = format.format(new Date()); };
  });
  let shown = false;
  const tick = () => {
    faces.forEach((face) => face());
    shown ||= root.isConnected;
    if (shown && !root.isConnected) clearInterval(timer);
  };
  const timer = setInterval(tick, 1000);
  tick();
  return root;
}

export default Clocks;
