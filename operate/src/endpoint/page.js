// Fetches /stats each second and draws it. All texts are set as text: keys are the service's, and may hold anything.
"use strict";
// Ten minutes in bins of five seconds, which are kept for each listed key while the page is open.
const BINS = 120;
const BIN_MS = 5000;
const NAME = 160;
const series = new Map();
let before = null;

const find = (id) => document.getElementById(id);
// Texts may be of any length; the page has room for a few hundred letters of each.
const clip = (text, most = 2 * NAME) => {
  const all = String(text ?? "");
  return all.length > most ? `${all.slice(0, most / 2)}…${all.slice(-most / 2)}` : all;
};
const make = (name, text, css) => Object.assign(document.createElement(name), { textContent: clip(text), className: css ?? "" });
const cell = (row, text, group) => {
  const made = row.insertCell();
  made.textContent = clip(text);
  if (text === "0") made.classList.add("zero");
  if (group) made.classList.add(group);
  return made;
};
const whole = (value) => value.toLocaleString("en");
const short = (value) => {
  if (value === null || value === undefined) return "";
  if (Math.abs(value) >= 99.95) return whole(Math.round(value));
  return value === 0 ? "0" : value.toPrecision(3);
};
const named = (key) => clip(key === null ? "(keys without a record)" : key || "(unnamed)", NAME);

function spark(bins, colour) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${BINS} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const most = Math.max(1e-9, ...bins);
  // The last point is the bin that is being filled.
  const x = (at) => at + BINS + 1 - bins.length;
  line.setAttribute("class", `line-${colour}`);
  line.setAttribute("points", bins.map((rate, at) => `${x(at)},${(97 - (94 * rate) / most).toFixed(1)}`).join(" "));
  svg.append(line);
  return svg;
}

// Rates of a key in bins: those of the last bin are of the time since it began.
function advance(key, counts, now) {
  const known = series.get(key) ?? { bins: counts.map(() => []), start: counts, at: now, rates: counts.map(() => null) };
  series.set(key, known);
  const seconds = (now - known.at) / 1000;
  if (seconds <= 0) return known;
  known.rates = counts.map((count, of) => Math.max(0, count - known.start[of]) / seconds);
  if (now - known.at < BIN_MS) return known;
  known.bins.forEach((bins, of) => {
    bins.push(known.rates[of]);
    if (bins.length > BINS) bins.shift();
  });
  [known.start, known.at] = [counts, now];
  return known;
}

function table(id, names, lines, css) {
  const made = document.createElement("tbody");
  const head = made.insertRow();
  names.forEach((name) => head.append(make("th", name)));
  for (const line of lines) {
    const row = made.insertRow();
    line.forEach((text, at) => cell(row, text, at === 0 ? css : ""));
  }
  (find(id).tBodies ? find(id) : find(id).querySelector("table")).tBodies[0].replaceWith(made);
}

function figures(stats, seconds) {
  const early = stats.roots_kept + stats.parents_kept, all = early + stats.roots_dropped + stats.parents_dropped;
  const kept = early + stats.tail.kept;
  const errors = stats.outcomes.reduce((sum, of) => sum + of.errors, 0);
  const now = { kept, all, errors };
  const rate = (name) => (seconds > 0 ? Math.max(0, now[name] - before.now[name]) / seconds : null);
  if (seconds > 0) find("title").textContent = `${short(rate("kept"))} of ${short(rate("all"))} requests a second are kept`;
  const list = [[short(rate("all")) || "-", "requests a second"], [short(rate("kept")) || "-", "kept a second"]];
  if (stats.outcomes.length > 0) list.push([short(rate("errors")) || "-", "errors a second"]);
  list.push([whole(stats.spans_waiting), "spans wait"], [whole(stats.spans_lost), "spans lost"]);
  find("figures").replaceChildren(...list.map(([number, name]) => {
    const made = make("div");
    made.append(make("b", number), make("span", name));
    return made;
  }));
  const waits = [];
  if (stats.spans_open > 0) waits.push([`${whole(stats.spans_open)} spans are open.`]);
  if (stats.waiting) waits.push([`Exports wait: ${stats.waiting}`, "bad"]);
  if (stats.tail.held > 0) waits.push([`${whole(stats.tail.held)} recorded traces are held for late policies (${whole(stats.tail.ring_bytes)} of ${whole(stats.tail.ring_bytes_max)} bytes).`]);
  const lost = Object.entries(stats.lost_by).map(([reason, spans]) => `${reason.replaceAll("_", " ")} ${whole(spans)}`);
  if (lost.length > 0) waits.push([`Lost: ${lost.join(", ")}.`, "bad"]);
  find("waits").replaceChildren(...waits.map(([text, css]) => make("p", text, css)));
  return now;
}

function draw(stats, now) {
  const seconds = before === null ? 0 : (now - before.at) / 1000;
  before = { at: now, now: figures(stats, seconds) };
  const outcomes = new Map(stats.outcomes.map((of) => [of.key, of]));
  const has = outcomes.size > 0;
  const keys = document.createElement("tbody");
  const head = keys.insertRow();
  ["key", "seen a second", "kept a second", ...(has ? ["errors a second", "p50 ms", "p95 ms"] : [])].forEach((name) => head.append(make("th", name)));
  const listed = new Set();
  for (const key of stats.keys) {
    const outcome = outcomes.get(key.key);
    const known = advance(key.key, [key.seen, key.kept + key.kept_late, outcome?.errors ?? 0], now);
    listed.add(key.key);
    const row = keys.insertRow();
    cell(row, named(key.key), "name");
    ["soft", "ours", "bad"].slice(0, has ? 3 : 2).forEach((colour, of) => cell(row, short(known.rates[of])).append(spark([...known.bins[of], known.rates[of] ?? 0], colour)));
    if (has) [outcome?.p50_ms, outcome?.p95_ms].forEach((value) => cell(row, short(value)));
  }
  for (const key of series.keys()) if (!listed.has(key)) series.delete(key);
  find("keys").tBodies[0].replaceWith(keys);
  const [first] = stats.keys;
  find("next").hidden = !first?.key || first.key.length > NAME;
  if (!find("next").hidden) {
    const query = `key=${encodeURIComponent(first.key)}&seconds=600&keep=1`;
    find("command").textContent = `curl -X POST -H 'authorization: Bearer TOKEN' '${location.origin}/override?${query.replaceAll("'", "%27")}'`;
  }
  const more = stats.keys_all - stats.keys.length;
  find("state").textContent = more > 0 ? `${whole(more)} keys with fewer requests are not listed` : "updated each second";
  const overrides = Object.entries(stats.overrides);
  find("overrides").hidden = overrides.length === 0;
  find("overrides").querySelector("ul").replaceChildren(...overrides.map(([key, left]) => make("li", `${named(key)}: ${whole(left)} s left`)));
  details(stats);
}

function details(stats) {
  const rows = [
    ["sampler", stats.sampler],
    ["cap", stats.cap ?? "none"],
    ["file and traffic", stats.file_fit ? stats.file_fit.text : ""],
    ["cap's credit", stats.cap_level === null ? "" : `${(100 * stats.cap_level).toFixed(0)} %`],
    ["roots kept / dropped", `${whole(stats.roots_kept)} / ${whole(stats.roots_dropped)}`],
    ["kept / dropped by parents", `${whole(stats.parents_kept)} / ${whole(stats.parents_dropped)}`],
    ["spans exported / lost", `${whole(stats.spans_exported)} / ${whole(stats.spans_lost)}`],
    ["spans open / waiting", `${whole(stats.spans_open)} / ${whole(stats.spans_waiting)}`],
    ["parameters file", stats.parameters_fault ?? ""],
    ["last error", stats.last_error ?? ""],
    ["hint", stats.hint ?? ""],
  ];
  const tail = stats.tail;
  find("late").hidden = tail.policies.length === 0;
  if (tail.strata !== null) rows.push(["kept of recorded by strata / refused by the cap", `${whole(tail.strata.kept)} of ${whole(tail.strata.decided)} / ${whole(tail.strata.refused)}`]);
  if (tail.policies.length > 0) {
    const given = Object.entries(tail.given_up).filter(([, traces]) => traces > 0);
    const ring = `${whole(tail.ring_bytes)} of ${whole(tail.ring_bytes_max)} bytes`;
    rows.push(
      ["recorded traces open / held", `${whole(tail.open)} / ${whole(tail.held)}, ${ring}`],
      ["given up", given.map(([reason, traces]) => `${reason.replaceAll("_", " ")} ${whole(traces)}`).join(", ") || "none"],
      ["kept by hand / for callers", `${whole(tail.kept_by_hand)} / ${whole(tail.kept_by_caller)}`],
      ["requests for unknown traces / refused", `${whole(tail.not_there)} / ${whole(tail.refused_callers)}`],
    );
    if (tail.untold > 0) rows.push(["traces not announced to peers", whole(tail.untold)]);
    if (tail.without_slot > 0) rows.push(["not recorded, all slots were in use", whole(tail.without_slot)]);
    if (tail.switched_off.length > 0) rows.push(["policies switched off", tail.switched_off.join(", ")]);
    table("late", ["policy", "traces", "bytes", "refused: its budget was used up"], tail.policies.map((of) => [of.policy, whole(of.kept), whole(of.bytes), whole(of.refused)]));
  }
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
  const tokens = stats.keys.some((key) => key.tokens !== null);
  const missed = new Map(stats.outcomes.map((of) => [of.key, of]));
  const names = ["key", "seen", "kept", "kept late", "dropped by sampler", "by cap", "by empty cap", "by override", "next kept with", ...(tokens ? ["tokens"] : [])];
  if (missed.size > 0) names.push("calls", "errors", "errors not recorded", "p99 ms");
  table("decisions", names, stats.keys.map((key) => {
    const line = [named(key.key), ...[key.seen, key.kept, key.kept_late, key.sampler, key.cap, key.cap_empty, key.override].map(whole), short(key.probability)];
    if (tokens) line.push(short(key.tokens));
    const of = missed.get(key.key);
    if (missed.size > 0) line.push(...(of ? [whole(of.calls), whole(of.errors), whole(of.missed_errors), short(of.p99_ms)] : ["", "", "", ""]));
    return line;
  }), "name");
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

function mount() {
  const wide = find("parts").appendChild(document.createElement("div"));
  wide.className = "wide";
  wide.tabIndex = 0;
  return wide.appendChild(document.createElement("table"));
}

async function drawParts() {
  parts ??= await (await fetch("/parts")).json();
  for (const part of parts) {
    const answer = await (await fetch(`/${encodeURIComponent(part.path)}?rows=${ROWS}`)).json();
    part.table ??= mount();
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
