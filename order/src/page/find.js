// Finds events by text, shows those of a severity or a process, and the causes (red) and effects
// (green) of a clicked event.
(() => {
  const svg = document.querySelector("svg.order");
  const data = document.getElementById("causes");
  if (!svg || !data) return;
  // Pairs of cause and effect, by place in the list of events.
  const into = new Map(), out = new Map();
  const add = (map, from, to) => map.has(from) ? map.get(from).push(to) : map.set(from, [to]);
  JSON.parse(data.textContent).forEach(([cause, effect]) => { add(into, effect, cause); add(out, cause, effect); });
  const event = number => document.getElementById("e" + number);
  const text = node => node.querySelector("title").textContent;
  const found = document.getElementById("found");
  const field = document.getElementById("find");
  const clear = () => {
    svg.classList.remove("asked");
    svg.querySelectorAll(".is-cause,.is-effect,.is-found,.is-picked").forEach(node =>
      node.classList.remove("is-cause", "is-effect", "is-found", "is-picked"));
    found.textContent = "";
  };
  const reach = (map, start) => {
    const seen = new Set([start]), todo = [start];
    while (todo.length) (map.get(todo.pop()) || []).forEach(next => {
      if (!seen.has(next)) { seen.add(next); todo.push(next); }
    });
    return seen;
  };
  const pick = node => {
    clear();
    const number = Number(node.id.slice(1));
    const causes = reach(into, number), effects = reach(out, number);
    svg.classList.add("asked");
    causes.forEach(n => event(n)?.classList.add("is-cause"));
    effects.forEach(n => event(n)?.classList.add("is-effect"));
    node.classList.add("is-picked");
    svg.querySelectorAll(".arrow").forEach(line => {
      const [from, to] = [Number(line.dataset.a), Number(line.dataset.b)];
      if (causes.has(from) && causes.has(to)) line.classList.add("is-cause");
      else if (effects.has(from) && effects.has(to)) line.classList.add("is-effect");
    });
    found.textContent = `${causes.size - 1} causes, ${effects.size - 1} effects; the others are concurrent. ${text(node)}`;
  };
  svg.addEventListener("click", click => click.target.classList.contains("event") ? pick(click.target) : clear());
  field.addEventListener("input", () => {
    clear();
    const wanted = field.value.toLowerCase();
    if (!wanted) return;
    const nodes = Array.from(svg.querySelectorAll(".event")).filter(node => text(node).toLowerCase().includes(wanted));
    svg.classList.add("asked");
    nodes.forEach(node => node.classList.add("is-found"));
    nodes[0]?.scrollIntoView({ block: "center", inline: "center" });
    found.textContent = `${nodes.length} events found`;
  });
  const level = document.getElementById("level"), process = document.getElementById("process");
  const rows = Array.from(document.querySelectorAll("tr[data-event]"));
  const filter = () => {
    let shown = 0;
    rows.forEach(row => {
      const fits = Number(row.dataset.level) >= Number(level.value)
        && (process.value === "" || row.dataset.process === process.value);
      row.classList.toggle("is-out", !fits);
      event(row.dataset.event)?.classList.toggle("is-out", !fits);
      shown += fits;
    });
    found.textContent = shown < rows.length ? `${shown} of ${rows.length} events shown` : "";
  };
  level.addEventListener("change", filter);
  process.addEventListener("change", filter);
  document.addEventListener("keydown", key => { if (key.key === "Escape") { field.value = ""; clear(); } });
  document.querySelector(".bar").hidden = false;
  // A link to an event (#e12) opens with its causes and effects.
  const linked = /^#e\d+$/.test(location.hash) && document.querySelector(location.hash);
  if (linked) { pick(linked); linked.scrollIntoView({ block: "center", inline: "center" }); }
})();
