"use strict";
// Everything that comes from completions is inserted as text, never as HTML.

const $ = (id) => document.getElementById(id);
const element = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};
const number = (value, digits = 3) => (value === null || Number.isNaN(value) ? "?" : value.toFixed(digits));

async function unpack(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

// ---------------------------------------------------------------- plots

async function drawPlots() {
  const canvases = [...document.querySelectorAll(".canvas")];
  if (!canvases.length) return;
  const script = element("script");
  script.nonce = document.querySelector("script[nonce]").nonce;
  script.textContent = await (await unpack("plotly")).text();
  document.head.append(script);
  const figures = await (await unpack("figures")).json();
  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--grid"), linecolor: colour("--line"), tickcolor: colour("--line") };
    return { axis, ink: colour("--ink"), soft: colour("--soft"), card: colour("--card"), line: colour("--line") };
  };
  const themed = (layout) => {
    const t = theme();
    return {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: t.soft },
      hoverlabel: { bgcolor: t.card, bordercolor: t.line, font: { color: t.ink } },
      xaxis: { ...layout.xaxis, ...t.axis },
      yaxis: { ...layout.yaxis, ...t.axis },
    };
  };
  const draw = (canvas) => {
    const { data, layout } = figures[canvas.dataset.figure];
    return Plotly.react(canvas, data, themed(layout), { responsive: true, displayModeBar: false });
  };
  const drawn = new Set();
  const drawVisible = async () => {
    // What is folded has no size yet.
    for (const canvas of canvases.filter((c) => !drawn.has(c) && !c.closest("details:not([open])"))) {
      drawn.add(canvas);
      await draw(canvas);
      canvas.addEventListener("keydown", (event) => readValues(event, canvas));
      canvas.addEventListener("blur", () => Plotly.Fx.unhover(canvas));
    }
  };
  await drawVisible();
  for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", drawVisible);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
}

// Arrow keys walk along the values of a plot, which are shown as on hover and announced.
function readValues(event, canvas) {
  const traces = canvas._fullData.filter((trace) => trace.hoverinfo !== "skip");
  const points = [...new Set(traces.flatMap((trace) => [...trace.x]))].sort((a, b) => a - b);
  const at = canvas.dataset.at === undefined ? -1 : Number(canvas.dataset.at);
  const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: points.length - 1 };
  if (!(event.key in moves)) return;
  event.preventDefault();
  const now = Math.max(0, Math.min(points.length - 1, moves[event.key]));
  canvas.dataset.at = now;
  const hits = traces
    .map((trace) => ({ curveNumber: trace.index, pointNumber: [...trace.x].indexOf(points[now]), trace }))
    .filter((hit) => hit.pointNumber >= 0);
  Plotly.Fx.hover(canvas, hits.map(({ curveNumber, pointNumber }) => ({ curveNumber, pointNumber })));
  const title = canvas.layout.meta;
  const values = hits.map(({ trace, pointNumber }) => `${trace.name} ${Number(trace.y[pointNumber].toPrecision(4))}`);
  $("announce").textContent = `${title} ${Number(points[now].toPrecision(4))}: ${values.join(", ")}`;
}

// A link of the verdict to a folded plot, and paper, unfold it.
for (const link of document.querySelectorAll("a[href^='#plot-']")) {
  link.addEventListener("click", () => {
    const fold = $(link.hash.slice(1)).closest("details");
    if (fold) fold.open = true;
  });
}
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});

// ---------------------------------------------------------------- completions

const FIRST_TOKENS = 3000; // of a completion, before a button shows the rest

async function showCompletions() {
  const data = await (await unpack("data")).json();
  const buffer = async (name) => ($(`column-${name}`) ? (await unpack(`column-${name}`)).arrayBuffer() : new ArrayBuffer(0));
  const ids = new (data.wide ? Uint32Array : Uint16Array)(await buffer("tokens"));
  const thousandths = new Int16Array(await buffer("coefficients"));
  const levels = { log_probs: new Uint8Array(await buffer("log_probs")), entropies: new Uint8Array(await buffer("entropies")) };
  const coefficient = (i) => (thousandths[i] === -32768 ? NaN : thousandths[i] / 1000);
  const level = (name, i) => data.tables[name][levels[name][i]] ?? NaN; // 255 is not in the table
  const textOf = (c) => {
    c.found ??= (c.text ?? Array.from(ids.subarray(c.first, c.first + c.length), (id) => data.vocabulary[id]).join("")).replaceAll("⏎\n", "\n").toLowerCase();
    return c.found;
  };
  let matching = []; // groups that pass the filters, with those of their completions that do

  function applyFilters() {
    const step = $("step").value, needle = $("search").value.toLowerCase();
    const low = $("low").value === "" ? -Infinity : Number($("low").value);
    const high = $("high").value === "" ? Infinity : Number($("high").value);
    const anyReward = low === -Infinity && high === Infinity;
    const groups = data.runs[Number($("run")?.value ?? 0)].groups;
    matching = groups.flatMap((group) => {
      if (step !== "" && String(group.step) !== step) return [];
      if ($("contrast").checked && !(group.completions.some((c) => c.side > 0) && group.completions.some((c) => c.side < 0))) return [];
      const inPrompt = needle === "" || group.prompt.toLowerCase().includes(needle);
      const completions = group.completions.filter(
        (c) => (anyReward || (c.reward !== null && c.reward >= low && c.reward <= high)) && (inPrompt || textOf(c).includes(needle)),
      );
      return completions.length ? [{ group, completions }] : [];
    });
    $("group").replaceChildren(
      ...matching.map(({ group }, i) => {
        const won = group.completions.filter((c) => c.side > 0).length, lost = group.completions.filter((c) => c.side < 0).length;
        const outcome = won || lost ? `${won} winners, ${lost} losers` : "no contrast";
        return element("option", { value: i }, `step ${group.step} · ${outcome} · ${group.prompt.replaceAll("⏎\n", " ").slice(0, 80)}`);
      }),
    );
    const completions = matching.reduce((sum, m) => sum + m.completions.length, 0);
    $("count").textContent = `${matching.length} groups, ${completions} completions`;
    showGroup();
  }

  function showGroup() {
    hideTip();
    const index = $("group").selectedIndex;
    $("previous").disabled = index <= 0;
    $("next").disabled = index < 0 || index >= matching.length - 1;
    const view = $("view");
    if (index < 0) {
      view.replaceChildren(element("p", { class: "empty" }, "Nothing passes these filters."));
      return;
    }
    const { group, completions } = matching[index];
    const prompt = element("div", { class: "prompt", dir: "auto", tabindex: "0" }, element("b", {}, `Prompt, step ${group.step}`), group.prompt);
    const sides = element("div", { class: "sides" });
    const contrast = group.completions.some((c) => c.side);
    const count = (side) => completions.filter((c) => c.side === side).length;
    // A side with twice as many gets twice the width; an empty one only a line.
    sides.dataset.more = count(1) >= 2 * count(-1) ? "winners" : count(-1) >= 2 * count(1) ? "losers" : "";
    for (const [side, name, heading] of [[1, "winners", "Winners"], [-1, "losers", "Losers"], [0, "none", contrast ? "At the mean" : "No contrast: equal rewards, nothing to learn"]]) {
      const some = completions.filter((c) => c.side === side);
      if (!some.length && (side === 0 || !contrast)) continue;
      const cards = element("div", { class: "cards" }, ...some.map(card));
      if (!some.length) cards.append(element("p", { class: "empty" }, "None passes the filters."));
      sides.append(element("section", { class: `side ${name}${some.length ? "" : " nobody"}` }, element("h3", {}, side ? `${heading} (${some.length})` : heading), cards));
    }
    view.replaceChildren(prompt, sides);
    keepInView();
  }

  // The shorter side stays beside the longer one while that scrolls; where it is taller than the window, its end does.
  function keepInView() {
    for (const side of $("view").querySelectorAll(".side")) {
      const top = document.querySelector("header").offsetHeight + 12;
      side.style.top = `${Math.min(top, innerHeight - side.offsetHeight - 12)}px`;
    }
  }
  addEventListener("resize", keepInView);

  function card(c, position) {
    const facts = [`reward ${c.reward === null ? "not scored" : Number(c.reward.toFixed(3))}`];
    for (const [name, value] of Object.entries(c.rewards ?? {})) facts.push(`${name} ${value === null ? "not scored" : Number(value.toFixed(3))}`);
    facts.push(`advantage ${number(c.advantage, 2)}`);
    if (c.text !== undefined) {
      return element("article", {}, element("p", {}, ...facts.map((f) => element("span", {}, f))), element("div", { class: "tokens", dir: "auto", tabindex: "0" }, c.text));
    }
    facts.push(`${c.total.toLocaleString("en")} tokens`, `mean coefficient ${number(c.mean)}`);
    const body = element("div", { class: "tokens", dir: "auto", role: "group", "aria-label": `Completion ${position + 1}: arrow keys move from token to token` });
    const article = element("article", {}, element("p", {}, ...facts.map((f) => element("span", {}, f))), body);
    body.completion = c;
    addTokens(body, c, 0, Math.min(c.length, FIRST_TOKENS));
    if (c.length > FIRST_TOKENS) {
      const more = element("button", { type: "button" }, `Show ${c.length < c.total ? "the first" : "all"} ${c.length.toLocaleString("en")} tokens`);
      more.addEventListener("click", () => {
        addTokens(body, c, FIRST_TOKENS, c.length);
        more.remove();
      });
      article.append(more);
    }
    return article;
  }

  function addTokens(body, c, from, to) {
    const part = document.createDocumentFragment();
    for (let i = from; i < to; i++) {
      const span = document.createElement("span");
      span.className = shade(c, i);
      span.textContent = data.vocabulary[ids[c.first + i]];
      span.place = i;
      part.append(span);
    }
    if (from === 0 && part.firstChild) part.firstChild.tabIndex = 0;
    body.append(part);
    underline(body);
  }

  const isRelative = () => $("view").dataset.shading === "relative";
  const fromSide = (c, i) => coefficient(c.first + i) - (c.sideMean ?? 1); // without a side: from 1

  // As `shade` in heatmap.py.
  function shade(c, i) {
    const distance = isRelative() ? fromSide(c, i) : coefficient(c.first + i) - 1;
    const strength = Math.min(10, Math.round((Math.abs(distance) / (isRelative() ? data.fullRelative : data.full)) * 10));
    return strength ? (distance > 0 ? "a" : "b") + strength : "";
  }

  function changeShading(name) {
    $("view").dataset.shading = name;
    for (const scale of document.querySelectorAll(".scales > span")) scale.hidden = scale.dataset.shading !== name;
    for (const body of $("view").querySelectorAll("div.tokens")) {
      if (!body.completion) continue;
      for (const span of body.children) span.className = shade(body.completion, span.place);
      underline(body);
    }
  }

  function underline(body) {
    const needle = $("search").value.toLowerCase();
    if (!needle) return;
    const text = body.textContent.toLowerCase();
    const hits = [];
    for (let at = text.indexOf(needle); at >= 0; at = text.indexOf(needle, at + needle.length)) hits.push(at);
    let end = 0, h = 0;
    for (const span of body.children) {
      const start = end;
      end += span.textContent.length;
      while (h < hits.length && hits[h] + needle.length <= start) h++;
      if (h < hits.length && hits[h] < end) span.classList.add("found");
    }
  }

  // -------------------------------------------------------------- values of a token

  const tip = $("tip");
  function showTip(span) {
    const c = span.parentNode.completion, i = c.first + span.place;
    const lines = [`“${span.textContent.replaceAll("⏎\n", "⏎")}”`, `coefficient ${number(coefficient(i))}`];
    const distance = fromSide(c, span.place);
    if (c.side && !Number.isNaN(distance)) lines.push(`${distance < 0 ? "−" : "+"}${Math.abs(distance).toFixed(3)} from its side’s mean`);
    const probability = Math.exp(-level("log_probs", i)), entropy = level("entropies", i);
    if (!Number.isNaN(probability)) lines.push(`probability ${probability > 0.95 ? probability.toFixed(3) : probability.toPrecision(2)}`);
    if (!Number.isNaN(entropy)) lines.push(`entropy ${entropy.toFixed(2)}`);
    lines.push(`token ${span.place + 1} of ${c.total}`);
    tip.textContent = lines.join("\n");
    tip.hidden = false;
    const at = span.getClientRects()[0] ?? span.getBoundingClientRect();
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(at.left, innerWidth - box.width - 8))}px`;
    tip.style.top = `${at.bottom + box.height + 10 < innerHeight ? at.bottom + 6 : at.top - box.height - 6}px`;
  }
  function hideTip() {
    tip.hidden = true;
  }
  const tokenAt = (event) => (event.target.place === undefined ? null : event.target);
  const view = $("view");
  view.addEventListener("pointerover", (event) => (tokenAt(event) ? showTip(event.target) : hideTip()));
  view.addEventListener("pointerleave", hideTip);
  view.addEventListener("scroll", hideTip, true);
  view.addEventListener("focusin", (event) => {
    if (!tokenAt(event)) return;
    event.target.setAttribute("aria-describedby", "tip");
    showTip(event.target);
  });
  view.addEventListener("focusout", hideTip);
  view.addEventListener("keydown", (event) => {
    const span = tokenAt(event);
    if (!span) return;
    if (event.key === "Escape") return hideTip();
    const target = {
      ArrowRight: span.nextSibling,
      ArrowLeft: span.previousSibling,
      Home: span.parentNode.firstChild,
      End: span.parentNode.lastChild,
    }[event.key];
    if (!target) return;
    event.preventDefault();
    span.tabIndex = -1;
    target.tabIndex = 0;
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "nearest" });
    showTip(target);
  });

  $("shading")?.addEventListener("input", (event) => changeShading(event.target.value));
  const move = (by) => {
    $("group").selectedIndex += by;
    showGroup();
  };
  $("previous").addEventListener("click", () => move(-1));
  $("next").addEventListener("click", () => move(1));
  $("group").addEventListener("change", showGroup);
  $("filters").addEventListener("input", applyFilters);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  applyFilters();
  // Begin with a group that has something to compare.
  const contrast = matching.findIndex((m) => m.completions.some((c) => c.side > 0) && m.completions.some((c) => c.side < 0));
  if (contrast > 0) {
    $("group").selectedIndex = contrast;
    showGroup();
  }
}

// ---------------------------------------------------------------- tables

for (const table of document.querySelectorAll(".sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    head.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") !== "descending";
      const value = (row) => {
        const cell = row.cells[column];
        if (column === 0) return cell.textContent;
        const parsed = parseFloat(cell.dataset.value ?? cell.textContent);
        return Number.isNaN(parsed) ? -Infinity : parsed;
      };
      const rows = [...body.rows].map((row) => [value(row), row]);
      rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (descending ? -1 : 1));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      body.append(...rows.map(([, row]) => row));
    });
  });
}

(async () => {
  try {
    if ($("view")) await showCompletions();
    await drawPlots(); // last: they take longest
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    $("failure").hidden = false;
    $("failure").textContent = `This page could not be drawn (${error}). It needs a browser from 2023 or later.`;
    throw error;
  }
})();
