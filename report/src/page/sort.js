// A click on a heading sorts its table by that column: numbers by value, names by letter.
document.querySelectorAll("table.sortable").forEach(table => {
  const head = table.rows[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.v || cell.textContent.replace(/[,%+]/g, "").trim();
    return text === "" || text === "-" ? -Infinity : isNaN(text) ? text : Number(text);
  };
  Array.from(head.cells).forEach((cell, column) => cell.addEventListener("click", () => {
    const ascending = cell.getAttribute("aria-sort") === "descending";
    const rows = Array.from(table.rows).slice(1);
    const order = (a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      return typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1;
    };
    rows.sort((a, b) => ascending ? order(a, b) : order(b, a));
    rows.forEach(row => row.parentNode.appendChild(row));
    Array.from(head.cells).forEach(other => other.removeAttribute("aria-sort"));
    cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  }));
});
