"use strict";

const $ = (id) => document.getElementById(id);
const { nonce } = document.currentScript;

// The text of a compressed part of the page.
async function unpack(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// The selected group of completions: HTML in which everything was escaped when the page was written.
async function showGroup() {
  $("view").innerHTML = await unpack($("group").value);
  for (const token of document.querySelectorAll("article > .tokens > :first-child")) token.tabIndex = 0;
}

async function drawPlots() {
  const script = document.createElement("script");
  script.nonce = nonce;
  script.text = await unpack("plotly");
  document.head.append(script);
  for (const plot of waiting) await Plotly.newPlot(...plot);
}

// Arrow keys move from token to token; the style shows the values of the one that has the focus.
$("view")?.addEventListener("keydown", (event) => {
  const step = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
  const next = event.target.matches(".tokens > *") && event.target[step];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

for (const table of document.querySelectorAll(".sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    head.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") !== "descending";
      const value = (row) => {
        const cell = row.cells[column], number = parseFloat(cell.dataset.value ?? cell.textContent);
        return column === 0 ? cell.textContent : Number.isNaN(number) ? -Infinity : number;
      };
      const sign = descending ? -1 : 1;
      const rows = [...body.rows].sort((a, b) => (value(a) < value(b) ? -sign : value(a) > value(b) ? sign : 0));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      body.append(...rows);
    });
  });
}

(async () => {
  try {
    if ($("group")) await showGroup();
    $("group")?.addEventListener("change", showGroup);
    if (waiting.length) await drawPlots(); // last: it takes longest
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    $("failure").hidden = false;
    $("failure").textContent = `This page could not be drawn (${error}). It needs a browser from 2023 or later.`;
    throw error;
  }
})();
