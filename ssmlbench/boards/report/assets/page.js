"use strict";

/* Leaderboards: a heading sorts by its column, again the other way round; what is missing stays last. */
function valueOf(row, column) {
  const text = row.cells[column].textContent;
  return column === 0 ? text : parseFloat(text);
}

function compare(a, b) {
  return typeof a === "string" ? a.localeCompare(b) : a - b;
}

function sortBy(header) {
  const table = header.closest("table");
  const column = header.cellIndex;
  const first = header.dataset.first;
  const other = first === "ascending" ? "descending" : "ascending";
  const direction = header.getAttribute("aria-sort") === first ? other : first;
  for (const each of header.parentElement.cells) each.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const rows = Array.from(table.tBodies[0].rows, (row) => ({ row, value: valueOf(row, column) }));
  rows.sort((a, b) => {
    const missing = Number(Number.isNaN(a.value)) - Number(Number.isNaN(b.value));
    return missing || (Number.isNaN(a.value) ? 0 : sign * compare(a.value, b.value));
  });
  table.tBodies[0].append(...rows.map(({ row }) => row));
}

for (const button of document.querySelectorAll(".leaders thead button")) {
  button.addEventListener("click", () => sortBy(button.parentElement));
}

/* Training curves: a box shows or hides the figures of one method. */
for (const box of document.querySelectorAll("input[data-shows]")) {
  const figures = document.getElementById(box.dataset.shows);
  const update = () => { figures.hidden = !box.checked; };
  box.addEventListener("change", update);
  update();
}

/* Filters: rows by method and by what they learn from; articles and columns by data set. */
const filters = document.querySelector(".filters");
const chosen = {
  method: document.getElementById("filter-method"),
  dataset: document.getElementById("filter-dataset"),
  tier: document.getElementById("filter-tier"),
};

function filter() {
  const words = chosen.method.value.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const { value: dataset } = chosen.dataset;
  const { value: tier } = chosen.tier;
  for (const element of document.querySelectorAll("[data-dataset]")) {
    element.hidden = dataset !== "" && element.dataset.dataset !== dataset;
  }
  const methods = new Set();
  for (const row of document.querySelectorAll("tr[data-method]")) {
    const name = row.dataset.method.toLowerCase();
    const fits = words.length === 0 || words.some((word) => name.includes(word));
    row.hidden = !fits || (tier !== "" && row.dataset.tier !== tier);
    if (!row.hidden) methods.add(row.dataset.method);
  }
  const all = words.length === 0 && dataset === "" && tier === "";
  document.getElementById("filter-count").textContent = all ? "" : `${methods.size} methods shown`;
}

filters.hidden = false;
for (const control of Object.values(chosen)) control.addEventListener("input", filter);
