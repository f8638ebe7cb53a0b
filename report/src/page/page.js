// Sorts tables by a click on a heading, filters long ones, and copies commands. Pages are readable without it.
"use strict";
const copy = (code) => {
  const button = document.createElement("button");
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected";
    }
  });
  code.after(button);
};
document.querySelectorAll(".next code").forEach(copy);

const value = (cell) => {
  const text = cell?.dataset.v ?? cell?.textContent.replace(/[,%+×]/g, "").trim() ?? "";
  return text === "" || text === "-" ? -Infinity : isNaN(text) ? text : Number(text);
};
const compare = (x, y) => (typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1);
// Long tables get a filter.
const LONG = 12;
document.querySelectorAll("table").forEach((table) => {
  const [head, ...rows] = table.rows;
  if (!head || rows.length < 2) return;
  Array.from(head.cells).forEach((cell, column) => {
    const button = document.createElement("button");
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const ascending = cell.getAttribute("aria-sort") === "descending";
      const keys = new Map(rows.map((row) => [row, value(row.cells[column])]));
      rows.sort((a, b) => (ascending ? 1 : -1) * compare(keys.get(a), keys.get(b)));
      rows.forEach((row) => row.parentNode.append(row));
      Array.from(head.cells).forEach((other) => other.removeAttribute("aria-sort"));
      cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    });
  });
  if (rows.length <= LONG) return;
  const label = document.createElement("label");
  const field = document.createElement("input");
  const count = document.createElement("output");
  field.type = "search";
  label.className = "filter note";
  label.append("Filter ", field, " ", count);
  table.parentNode.before(label);
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    let shown = 0;
    rows.forEach((row) => {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += !row.hidden;
    });
    count.textContent = wanted === "" ? "" : `${shown} of ${rows.length}`;
  });
});
