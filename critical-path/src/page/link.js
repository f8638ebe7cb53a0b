// Links the boxes of the icicle and the rows of the table: pointing at one marks the other.
"use strict";
(() => {
  const icicle = document.getElementById("icicle");
  const pointed = document.getElementById("pointed");
  if (!icicle) return;
  const all = document.querySelectorAll("[data-n]");
  const mark = (number) => all.forEach((node) => node.classList.toggle("hit", number !== undefined && node.dataset.n === number));
  const box = (event) => event.target.closest(".box");
  const point = (event) => {
    const own = box(event);
    mark(own?.dataset.n);
    if (own) pointed.textContent = own.querySelector("title").textContent;
  };
  icicle.addEventListener("pointerover", point);
  icicle.addEventListener("click", (event) => {
    point(event);
    const number = box(event)?.dataset.n;
    if (number) document.querySelector(`tr[data-n="${number}"]`)?.scrollIntoView({ block: "nearest" });
  });
  document.querySelectorAll("tr[data-n]").forEach((row) => row.addEventListener("pointerover", () => {
    mark(row.dataset.n);
    // The widest box stands for the call.
    const width = (own) => parseFloat(own.getAttribute("width"));
    const own = Array.from(icicle.querySelectorAll(`.box[data-n="${row.dataset.n}"]`)).sort((a, b) => width(b) - width(a))[0];
    if (own) pointed.textContent = own.querySelector("title").textContent;
  }));
})();
