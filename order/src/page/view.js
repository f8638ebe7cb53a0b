// The space-time diagram on a canvas. Only what is in the window is drawn, so that 20,000 events scroll smoothly.
"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const whole = (value) => value.toLocaleString("en");
  const viewer = find("viewer"), canvas = find("view"), strip = find("strip"), panel = find("panel"), found = find("found");
  const data = JSON.parse(find("data").textContent);
  const lines = find("events").textContent.split("\n").slice(0, data.x.length).map((line) => line.split("\t"));
  const [TIME, THREAD, KIND, ID, PLACE, TEXT] = [0, 1, 2, 3, 4, 5];
  const count = data.x.length;
  viewer.hidden = false;

  // Rows: threads below their process and host, by their first event.
  const ROW = 22, AXIS = 24, HIT = 9;
  const groups = new Map();
  data.threads.forEach(([process], thread) => {
    const [host] = data.processes[process];
    if (!groups.has(host)) groups.set(host, new Map());
    const ofHost = groups.get(host);
    if (!ofHost.has(process)) ofHost.set(process, []);
    ofHost.get(process).push(thread);
  });
  const hostOf = (thread) => data.processes[data.threads[thread][0]][0];
  for (const host of groups.keys()) find("host").append(new Option(data.hosts[host] || "(unnamed)", host));
  const ofThread = data.threads.map(() => []);
  for (let at = 0; at < count; at++) ofThread[data.thread[at]].push(at);
  ofThread.forEach((events) => events.sort((a, b) => data.x[a] - data.x[b]));
  const byX = Array.from({ length: count }, (_, at) => at).sort((a, b) => data.x[a] - data.x[b]);
  const width = Math.max(1, ...byX.slice(-1).map((at) => data.x[at]));
  const into = Array.from({ length: count }, () => []), out = Array.from({ length: count }, () => []);
  const join = (cause, effect) => { into[effect].push(cause); out[cause].push(effect); };
  data.before.forEach((ago, at) => { if (ago > 0) join(at - ago, at); });
  data.links.forEach(([cause, effect]) => join(cause, effect));

  // The first place in a list of events, sorted by x, at or after x.
  const from = (list, x) => {
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.x[list[middle]] < x) low = middle + 1; else high = middle;
    }
    return low;
  };

  let left = -10, scale = 1, top = 0, rows = [], rowOf = [], picked = null, causes = null, effects = null;
  let fits = new Uint8Array(count).fill(1), matches = count, is_asked = false;
  const gutter = () => (canvas.clientWidth < 600 ? 96 : 220);
  const room = () => Math.max(50, canvas.clientWidth - gutter() - 10);
  const px = (x) => gutter() + (x - left) * scale;
  const style = () => {
    const of = getComputedStyle(document.documentElement);
    return Object.fromEntries(["fg", "soft", "line", "bg", "card", "good", "bad", "ours", "track"].map((name) => [name, of.getPropertyValue(`--${name}`).trim()]));
  };
  let colours = style();
  const font = '12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

  // Threads without events in the window are folded into the heading of their process.
  const isIn = (thread) => {
    const list = ofThread[thread], end = left + room() / scale;
    for (let at = from(list, left); at < list.length && data.x[list[at]] <= end; at++) if (fits[list[at]]) return true;
    return false;
  };
  const arrange = () => {
    rows = [];
    rowOf = data.threads.map(() => -1);
    for (const [host, processes] of groups) for (const [process, threads] of processes) {
      const shown = threads.filter(isIn);
      if (shown.length === 0) continue;
      const name = data.processes[process][1], folded = threads.length - shown.length;
      const label = name ? `${name} on ${data.hosts[host]}` : data.hosts[host] || "(unnamed)";
      rows.push({ label: folded ? `${label} (+${folded})` : label });
      shown.forEach((thread) => { rowOf[thread] = rows.length; rows.push({ label: data.threads[thread][1] || "(unnamed)", thread }); });
    }
    const high = Math.min(Math.max(rows.length, 4) * ROW + AXIS, Math.max(240, innerHeight * 0.62));
    canvas.style.height = `${high}px`;
    // Where all rows fit, a finger scrolls the page up and down.
    canvas.style.touchAction = rows.length * ROW + AXIS > high ? "none" : "pan-y";
    top = Math.max(0, Math.min(top, rows.length * ROW + AXIS - high));
  };

  const y = (row) => AXIS + row * ROW + ROW / 2 - top;
  const shape = (pen, at, x, y) => {
    const level = data.level[at];
    pen.beginPath();
    if (level >= 17) { pen.moveTo(x, y - 6); pen.lineTo(x + 6, y + 5); pen.lineTo(x - 6, y + 5); }
    else if (level >= 13) { pen.moveTo(x, y - 6); pen.lineTo(x + 5, y); pen.lineTo(x, y + 6); pen.lineTo(x - 5, y); }
    else if (data.shape[at] === 1) { pen.moveTo(x - 3, y - 4); pen.lineTo(x + 4, y); pen.lineTo(x - 3, y + 4); }
    else if (data.shape[at] === 2) { pen.moveTo(x + 3, y - 4); pen.lineTo(x - 4, y); pen.lineTo(x + 3, y + 4); }
    else if (data.shape[at] === 3) pen.rect(x - 3, y - 3, 6, 6);
    else pen.arc(x, y, 3.5, 0, 7);
    pen.closePath();
    pen.fill();
  };
  const sized = (of) => {
    const ratio = devicePixelRatio || 1, [wide, high] = [of.clientWidth, of.clientHeight];
    if (of.width !== Math.round(wide * ratio) || of.height !== Math.round(high * ratio)) [of.width, of.height] = [Math.round(wide * ratio), Math.round(high * ratio)];
    const pen = of.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, high);
    pen.font = font;
    return [pen, wide, high];
  };
  const cut = (pen, text, most) => {
    if (pen.measureText(text).width <= most) return text;
    let keep = Math.max(0, Math.floor(most / 6) - 1);
    while (keep > 0 && pen.measureText(text.slice(0, keep) + "…").width > most) keep--;
    return text.slice(0, keep) + "…";
  };

  const draw = () => {
    const [pen, wide, high] = sized(canvas);
    const right = left + (wide - gutter()) / scale;
    const visible = (thread) => rowOf[thread] >= 0;
    pen.save();
    pen.beginPath();
    pen.rect(gutter(), 0, wide - gutter(), high);
    pen.clip();
    // The axis: the times of events, far enough apart.
    let last = -Infinity;
    for (let at = from(byX, left); at < count && data.x[byX[at]] <= right; at++) {
      const x = px(data.x[byX[at]]);
      if (x < last) continue;
      const time = lines[byX[at]][TIME].replace(/(\.\d{3}\d*?)0+$/, "$1");
      last = x + pen.measureText(time).width + 24;
      pen.fillStyle = colours.line;
      pen.fillRect(x, AXIS - 4, 1, high);
      pen.fillStyle = colours.soft;
      pen.fillText(time, x + 3, 14);
    }
    pen.beginPath();
    pen.rect(gutter(), AXIS, wide - gutter(), high);
    pen.clip();
    const first = Math.max(0, Math.floor(top / ROW)), end = Math.min(rows.length, Math.ceil((top + high) / ROW));
    pen.fillStyle = colours.line;
    for (let row = first; row < end; row++) if (rows[row].thread !== undefined) pen.fillRect(gutter(), y(row), wide, 1);
    pen.fillStyle = colours.track;
    for (const [start, stop] of data.spans) {
      const row = rowOf[data.thread[start]];
      if (row < first || row >= end || data.x[stop] < left || data.x[start] > right) continue;
      pen.fillRect(px(data.x[start]), y(row) - 7, Math.max(1, (data.x[stop] - data.x[start]) * scale), 14);
    }
    for (const [cause, effect, far] of data.links) {
      const [a, b] = [data.x[cause], data.x[effect]];
      if (Math.max(a, b) < left || Math.min(a, b) > right || !visible(data.thread[cause]) || !visible(data.thread[effect]) || !fits[cause] || !fits[effect]) continue;
      const [y1, y2] = [y(rowOf[data.thread[cause]]), y(rowOf[data.thread[effect]])];
      if (Math.max(y1, y2) < 0 || Math.min(y1, y2) > high) continue;
      const is_cause = causes?.has(effect) && causes.has(cause), is_effect = effects?.has(cause) && effects.has(effect);
      pen.globalAlpha = picked === null ? 0.75 : is_cause || is_effect ? 1 : 0.12;
      pen.strokeStyle = is_cause ? colours.bad : is_effect ? colours.ours : colours.soft;
      pen.lineWidth = is_cause || is_effect ? 1.8 : 1;
      pen.setLineDash(far ? [4, 3] : []);
      const [x1, x2] = [px(a), px(b)], angle = Math.atan2(y2 - y1, x2 - x1), tip = [x2 - 4 * Math.cos(angle), y2 - 4 * Math.sin(angle)];
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.lineTo(...tip);
      for (const side of [0.4, -0.4]) { pen.moveTo(...tip); pen.lineTo(tip[0] - 6 * Math.cos(angle + side), tip[1] - 6 * Math.sin(angle + side)); }
      pen.stroke();
    }
    pen.setLineDash([]);
    for (let row = first; row < end; row++) {
      const thread = rows[row].thread;
      if (thread === undefined) continue;
      const list = ofThread[thread];
      for (let at = from(list, left - 20 / scale); at < list.length && data.x[list[at]] <= right; at++) {
        const event = list[at];
        if (!fits[event]) continue;
        const x = px(data.x[event]);
        const is_on = picked === null || event === picked || causes.has(event) || effects.has(event);
        pen.globalAlpha = is_on ? 1 : 0.2;
        pen.fillStyle = event !== picked && causes?.has(event) ? colours.bad : event !== picked && effects?.has(event) ? colours.ours
          : data.level[event] >= 13 ? colours.bad : data.shape[event] === 0 ? colours.fg : colours.good;
        shape(pen, event, x, y(row));
        if (event === picked) { pen.strokeStyle = colours.fg; pen.lineWidth = 2; pen.beginPath(); pen.arc(x, y(row), 9, 0, 7); pen.stroke(); }
        if (data.shape[event] !== 0) continue;
        let next = at + 1;
        while (next < list.length && !fits[list[next]]) next++;
        const space = (next < list.length ? px(data.x[list[next]]) : wide) - x - 14;
        pen.fillStyle = colours.fg;
        if (space > 36) pen.fillText(cut(pen, lines[event][TEXT].slice(0, 200), space), x + 8, y(row) + 4);
      }
    }
    pen.restore();
    pen.globalAlpha = 1;
    for (let row = first; row < end; row++) {
      const is_thread = rows[row].thread !== undefined;
      if (y(row) < AXIS) continue;
      pen.fillStyle = is_thread ? colours.soft : colours.fg;
      pen.font = is_thread ? font : `600 ${font}`;
      pen.fillText(cut(pen, rows[row].label, gutter() - (is_thread ? 22 : 10)), is_thread ? 14 : 2, y(row) + 4);
    }
    overview();
  };

  // All events above the window's place.
  const overview = () => {
    const [pen, wide, high] = sized(strip);
    const columns = new Uint32Array(Math.ceil(wide / 3) + 1), errors = new Uint8Array(columns.length);
    for (let at = 0; at < count; at++) if (fits[at]) {
      const column = Math.floor((data.x[at] / width) * (wide - 4) / 3);
      columns[column]++;
      if (data.level[at] >= 17) errors[column] = 1;
    }
    const most = Math.log1p(columns.reduce((a, b) => Math.max(a, b), 1));
    columns.forEach((events, column) => {
      if (events === 0) return;
      const tall = 3 + (high - 8) * Math.log1p(events) / most;
      pen.fillStyle = errors[column] ? colours.bad : colours.good;
      pen.fillRect(column * 3, high - tall, 2, tall);
    });
    pen.strokeStyle = colours.fg;
    pen.lineWidth = 2;
    const begin = Math.max(0, left / width * wide), end = Math.min(wide, (left + room() / scale) / width * wide);
    pen.strokeRect(begin + 1, 1, Math.max(4, end - begin - 2), high - 2);
  };

  let is_due = false;
  const redraw = () => {
    if (is_due) return;
    is_due = true;
    requestAnimationFrame(() => { is_due = false; draw(); });
  };
  let resting = 0;
  // Rows fold when the window has come to rest, so that they do not jump while it moves.
  const move = () => {
    const least = room() / (width + 40), most = 40;
    scale = Math.max(Math.min(least, 1), Math.min(most, scale));
    left = Math.max(-20, Math.min(left, width + 20 - room() / scale / 2));
    redraw();
    clearTimeout(resting);
    resting = setTimeout(() => { arrange(); redraw(); }, 160);
  };
  const zoom = (factor, at = gutter() + room() / 2) => {
    const x = left + (at - gutter()) / scale;
    scale *= factor;
    scale = Math.max(Math.min(room() / (width + 40), 1), Math.min(40, scale));
    left = x - (at - gutter()) / scale;
    move();
  };
  const fit = () => { scale = room() / (width + 40); left = -20; top = 0; move(); };
  const scroll = (by) => {
    const most = Math.max(0, rows.length * ROW + AXIS - canvas.clientHeight), before = top;
    top = Math.max(0, Math.min(most, top + by));
    redraw();
    return top !== before;
  };

  const reach = (map, start) => {
    const seen = new Set([start]), todo = [start];
    while (todo.length) for (const next of map[todo.pop()]) if (!seen.has(next)) { seen.add(next); todo.push(next); }
    return seen;
  };
  const list = (title, events) => {
    const made = document.createElement("div");
    made.append(Object.assign(document.createElement("h3"), { textContent: title }));
    for (const event of events.slice(0, 8)) {
      const button = document.createElement("button");
      button.textContent = `${lines[event][TIME]} ${lines[event][THREAD]}: ${lines[event][KIND]} ${lines[event][TEXT].slice(0, 90)}`;
      button.addEventListener("click", () => pick(event, true));
      made.append(button);
    }
    if (events.length > 8) made.append(Object.assign(document.createElement("p"), { className: "note", textContent: `and ${whole(events.length - 8)} more` }));
    return made;
  };
  const pick = (event, is_moving) => {
    picked = event;
    panel.replaceChildren();
    if (event === null) {
      causes = effects = null;
      panel.append(Object.assign(document.createElement("p"), { className: "note", textContent: "Select an event for its record, its causes and its effects." }));
      redraw();
      return;
    }
    [causes, effects] = [reach(into, event), reach(out, event)];
    const line = lines[event];
    const add = (name, text, css) => panel.append(Object.assign(document.createElement(name), { textContent: text, className: css ?? "" }));
    add("h3", `${line[KIND]} ${line[TIME]}`);
    add("p", `${line[THREAD]} on ${data.hosts[hostOf(data.thread[event])] || "(unnamed)"}`);
    add("p", `id ${line[ID]}, ${line[PLACE]}`, "note");
    add("p", line[TEXT], "record");
    add("p", `${whole(causes.size - 1)} causes and ${whole(effects.size - 1)} effects are here. No chain of causes joins it with the other ${whole(count - causes.size - effects.size + 1)} events.`, "note");
    if (into[event].length) panel.append(list("Caused by", into[event]));
    if (out[event].length) panel.append(list("Causes", out[event]));
    if (is_moving) show(event);
    redraw();
  };
  const show = (event) => {
    const x = px(data.x[event]);
    if (x < gutter() + 20 || x > gutter() + room() - 20) left = data.x[event] - room() / scale / 2;
    arrange();
    const row = rowOf[data.thread[event]];
    if (row >= 0 && (y(row) < AXIS || y(row) > canvas.clientHeight - ROW)) scroll(y(row) - canvas.clientHeight / 2);
    move();
  };
  const nearest = (x, at) => {
    const row = Math.floor((at - AXIS + top) / ROW), thread = rows[row]?.thread;
    if (thread === undefined || x < gutter()) return null;
    const wanted = left + (x - gutter()) / scale, events = ofThread[thread];
    let best = null;
    for (let i = from(events, wanted - HIT / scale); i < events.length && data.x[events[i]] <= wanted + HIT / scale; i++)
      if (fits[events[i]] && (best === null || Math.abs(data.x[events[i]] - wanted) < Math.abs(data.x[best] - wanted))) best = events[i];
    return best;
  };

  const filter = () => {
    const text = find("find").value.toLowerCase(), level = Number(find("level").value), host = find("host").value;
    is_asked = text !== "" || level > 0 || host !== "";
    matches = 0;
    for (let at = 0; at < count; at++) {
      const is = data.level[at] >= level && (host === "" || hostOf(data.thread[at]) === Number(host)) && (text === "" || lines[at].some((part) => part.toLowerCase().includes(text)));
      fits[at] = is ? 1 : 0;
      matches += fits[at];
    }
    found.textContent = is_asked ? `${whole(matches)} of ${whole(count)} events` : "";
    arrange();
    redraw();
  };
  const step = (by) => {
    for (let at = (picked ?? (by > 0 ? -1 : count)) + by; at >= 0 && at < count; at += by) if (fits[at]) return pick(at, true);
  };
  find("find").addEventListener("input", filter);
  find("find").addEventListener("keydown", (event) => { if (event.key === "Enter") step(event.shiftKey ? -1 : 1); });
  find("level").addEventListener("change", filter);
  find("host").addEventListener("change", filter);
  find("in").addEventListener("click", () => zoom(1.5));
  find("out").addEventListener("click", () => zoom(1 / 1.5));
  find("fit").addEventListener("click", fit);
  canvas.addEventListener("wheel", (event) => {
    const at = event.clientX - canvas.getBoundingClientRect().left;
    if (event.ctrlKey || event.metaKey || event.altKey) zoom(Math.exp(-event.deltaY / 300), at);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { left += (event.deltaX || event.deltaY) / scale; move(); }
    else if (!scroll(event.deltaY)) return;
    event.preventDefault();
  }, { passive: false });
  // Dragging moves the window, two fingers zoom.
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) {
      const at = nearest(event.offsetX, event.offsetY);
      canvas.style.cursor = at === null ? "grab" : "pointer";
      canvas.title = at === null ? "" : `${lines[at][TIME]} ${lines[at][KIND]} ${lines[at][TEXT].slice(0, 300)}`;
      return;
    }
    const others = [...fingers.values()].filter((finger) => finger.pointerId !== event.pointerId);
    if (others.length > 0) {
      const apart = (finger) => Math.max(20, Math.abs(finger.clientX - others[0].clientX));
      zoom(apart(event) / apart(before), (event.offsetX + others[0].offsetX) / 2);
    } else {
      left -= (event.clientX - before.clientX) / scale;
      scroll(before.clientY - event.clientY);
      move();
    }
    moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
    fingers.set(event.pointerId, event);
  });
  const release = (event) => {
    if (fingers.delete(event.pointerId) && event.type === "pointerup" && moved < 6) pick(nearest(event.offsetX, event.offsetY));
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  const aim = (event) => {
    if (event.buttons === 0 && event.type === "pointermove") return;
    left = (event.offsetX / strip.clientWidth) * width - room() / scale / 2;
    move();
  };
  strip.addEventListener("pointerdown", aim);
  strip.addEventListener("pointermove", aim);
  canvas.addEventListener("keydown", (event) => {
    const by = room() / 5;
    const keys = {
      ArrowLeft: () => { left -= by / scale; move(); }, ArrowRight: () => { left += by / scale; move(); },
      ArrowUp: () => scroll(-3 * ROW), ArrowDown: () => scroll(3 * ROW),
      "+": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: fit, n: () => step(1), p: () => step(-1), Escape: () => pick(null),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    keys[event.key]();
    event.preventDefault();
  });
  const restart = () => { colours = style(); move(); };
  addEventListener("resize", restart);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restart);
  // The beginning, with room for texts; all of it, if it is short.
  scale = Math.max(room() / (width + 40), 0.6);
  left = -20;
  arrange();
  draw();
  // A link to an event (#e12) opens with its causes and effects.
  const linked = /^#e(\d+)$/.exec(location.hash);
  const event = linked ? data.place.indexOf(Number(linked[1])) : -1;
  if (event >= 0) pick(event, true);
})();
