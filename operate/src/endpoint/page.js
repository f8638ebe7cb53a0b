// Fetches /stats each second and draws it. All texts are set as text: keys are the service's, and may hold anything.
"use strict";
const POINTS = 60;
const rates = new Map();
let before = null;

const find = (id) => document.getElementById(id);
const cell = (row, text, group) => {
  const made = row.insertCell();
  made.textContent = text;
  if (text === "0") made.classList.add("zero");
  if (group) made.classList.add(group);
};
const whole = (value) => value.toLocaleString("en");
const short = (value) => (value === null ? "" : Number(value.toPrecision(3)).toString());

function spark(points) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 120 20");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const most = Math.max(1, ...points);
  const x = (at) => ((at + POINTS - points.length) * 120) / (POINTS - 1);
  const base = document.createElementNS("http://www.w3.org/2000/svg", "path");
  base.setAttribute("d", "M0 19.5H120");
  svg.append(base);
  line.setAttribute("points", points.map((rate, at) => `${x(at).toFixed(1)},${(19 - (18 * rate) / most).toFixed(1)}`).join(" "));
  svg.append(line);
  return svg;
}

function draw(stats, now) {
  const rows = [
    ["sampler", stats.sampler],
    ["cap", stats.cap ?? "none"],
    ["file and traffic", stats.file_fit ? stats.file_fit.text : ""],
    ["cap's credit", stats.cap_level === null ? "" : `${(100 * stats.cap_level).toFixed(0)} %`],
    ["roots kept / dropped", `${whole(stats.roots_kept)} / ${whole(stats.roots_dropped)}`],
    ["kept / dropped by parents", `${whole(stats.parents_kept)} / ${whole(stats.parents_dropped)}`],
    ["spans exported / lost", `${whole(stats.spans_exported)} / ${whole(stats.spans_lost)}`],
    ["spans open / waiting", `${whole(stats.spans_open)} / ${whole(stats.spans_waiting)}`],
    ["overrides", Object.entries(stats.overrides).map(([key, left]) => `${key} (${left} s)`).join(", ")],
    ["parameters file", stats.parameters_fault ?? ""],
    ["last error", stats.last_error ?? ""],
    ["hint", stats.hint ?? ""],
  ];
  const tail = stats.tail;
  if (tail.policies.length > 0) {
    const given = Object.entries(tail.given_up).filter(([, traces]) => traces > 0);
    const ring = `${whole(tail.ring_bytes)} of ${whole(tail.ring_bytes_max)} bytes`;
    rows.push(
      ["recorded traces open / held", `${whole(tail.open)} / ${whole(tail.held)}, ${ring}`],
      ["given up", given.map(([reason, traces]) => `${reason.replace("_", " ")} ${whole(traces)}`).join(", ") || "none"],
      ["kept by hand / for callers", `${whole(tail.kept_by_hand)} / ${whole(tail.kept_by_caller)}`],
      ["asked for in vain / refused", `${whole(tail.not_there)} / ${whole(tail.refused_callers)}`],
    );
    if (tail.untold > 0) rows.push(["peers not told", whole(tail.untold)]);
    if (tail.without_slot > 0) rows.push(["not recorded for want of a slot", whole(tail.without_slot)]);
    if (tail.switched_off.length > 0) rows.push(["policies switched off", tail.switched_off.join(", ")]);
  }
  const fill = (name, lines) => {
    const body = document.createElement("tbody");
    for (const line of lines) {
      const row = body.insertRow();
      for (const text of line) cell(row, text);
    }
    find(name).tBodies[0].replaceWith(body);
    find(name).hidden = lines.length === 0;
  };
  fill("late", tail.policies.map((of) => [of.policy, whole(of.kept), whole(of.bytes), whole(of.refused)]));
  const nameOf = (key) => key ?? "(keys without a record)";
  fill("outcomes", stats.outcomes.map((of) =>
    [nameOf(of.key), whole(of.calls), whole(of.errors), whole(of.missed_errors), short(of.p50_ms), short(of.p99_ms)]));
  if (stats.dry_run !== null) {
    const dry = stats.dry_run;
    rows.push(["dry run", `${dry.sampler}: would keep ${whole(dry.kept)}, really kept ${whole(dry.kept_really)} of ${whole(dry.seen)}`]);
  }
  const process = document.createElement("tbody");
  for (const [name, value] of rows.filter(([, value]) => value !== "")) {
    const row = process.insertRow();
    cell(row, name);
    cell(row, value);
    if (["parameters file", "last error", "policies switched off"].includes(name)) row.className = "fault";
  }
  find("process").tBodies[0].replaceWith(process);

  const seconds = before === null ? 0 : (now - before.now) / 1000;
  const keys = document.createElement("tbody");
  const known = new Map();
  for (const key of stats.keys) {
    const name = nameOf(key.key);
    known.set(name, key.seen);
    const points = rates.get(name) ?? [];
    const last = before?.known.get(name);
    if (seconds > 0 && last !== undefined) points.push(Math.max(0, key.seen - last) / seconds);
    if (points.length > POINTS) points.shift();
    rates.set(name, points);
    const row = keys.insertRow();
    cell(row, name);
    cell(row, points.length === 0 ? "" : short(points[points.length - 1]));
    row.insertCell().append(spark(points));
    for (const count of [key.seen, key.kept, key.sampler, key.cap, key.cap_empty, key.override]) cell(row, whole(count));
    cell(row, short(key.probability));
    cell(row, short(key.tokens), "tokens");
  }
  for (const name of rates.keys()) if (!known.has(name)) rates.delete(name);
  find("keys").tBodies[0].replaceWith(keys);
  find("keys").classList.toggle("no-tokens", stats.keys.every((key) => key.tokens === null));
  find("keys").hidden = stats.keys.length === 0;
  const more = stats.keys_all - stats.keys.length;
  find("state").textContent = more > 0 ? `live; ${whole(more)} keys with fewer roots are not listed` : "live";
  before = { now, known };
}

// A list of shares: the first five as text, which unfolds to bars.
const unfolded = new Set();
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

function shares(row, id, list) {
  const made = row.insertCell();
  made.className = "text shares";
  if (list.length === 0) return;
  const all = made.appendChild(document.createElement("details"));
  all.open = unfolded.has(id);
  all.addEventListener("toggle", () => (all.open ? unfolded.add(id) : unfolded.delete(id)));
  const first = list.slice(0, 5).filter((of, at) => at === 0 || of.share >= 0.0005).map((of) => `${of.name} ${percent(of.share)}`).join(", ");
  all.appendChild(document.createElement("summary")).textContent = first;
  for (const of of list) {
    const bar = all.appendChild(document.createElement("div"));
    bar.style.setProperty("--share", `${Math.min(100, 100 * of.share).toFixed(1)}%`);
    bar.textContent = `${of.name} ${percent(of.share)}, ${short(of.ms)} ms`;
  }
}

// Other parts of the service: an answer's rows are objects, whose keys name the columns. Without
// `columns`, these are in the order of the object.
let parts = null;
const ROWS = 100;

async function drawParts() {
  parts ??= await (await fetch("/parts")).json();
  for (const part of parts) {
    const answer = await (await fetch(`/${encodeURIComponent(part.path)}?rows=${ROWS}`)).json();
    part.table ??= document.body.appendChild(document.createElement("table"));
    const made = document.createElement("table");
    const unmarked = (answer.unmarked_forks ?? []).map((of) => `${of.name} (${of.file}:${of.line}, ${whole(of.count)} times)`);
    const lacks = unmarked.length > 0 ? `; without .branch(): ${unmarked.join(", ")}` : "";
    made.createCaption().textContent = part.title + lacks;
    const [first] = answer.rows;
    const columns = answer.columns ?? Object.keys(first ?? {});
    if (first) {
      const head = made.createTHead().insertRow();
      for (const name of columns) {
        const title = head.appendChild(document.createElement("th"));
        title.textContent = name.replaceAll("_", " ");
        if (typeof first[name] !== "number") title.className = "text";
      }
    }
    const body = made.createTBody();
    const idOf = (line, name) => `${part.path}/${line[columns[0]]}/${name}`;
    const lists = columns.filter((name) => Array.isArray(first?.[name]));
    // The first row shows at once that lists unfold.
    if (lists.length > 0 && !part.isUnfolded) {
      part.isUnfolded = true;
      unfolded.add(idOf(first, lists[0]));
    }
    for (const line of answer.rows) {
      const row = body.insertRow();
      for (const name of columns) {
        const value = line[name];
        if (Array.isArray(value)) shares(row, idOf(line, name), value);
        else if (typeof value === "number") cell(row, whole(value));
        else cell(row, value, "text");
      }
    }
    part.table.replaceWith(made);
    part.table = made;
  }
}

let ticks = 0;

async function tick() {
  try {
    draw(await (await fetch("/stats")).json(), performance.now());
    await drawParts();
  } catch (error) {
    find("state").textContent = `no answer: ${error.message}`;
  }
  // The first rates come soon after the first counts, which show none.
  setTimeout(tick, ticks++ === 0 ? 400 : 1000);
}

find("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await fetch(`/why/${encodeURIComponent(find("trace").value.trim())}`);
  find("answer").textContent = answer.ok ? (await answer.json()).words : await answer.text();
});
tick();
