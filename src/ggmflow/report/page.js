"use strict";
// Updates the page for another point of the grid of (λ, q); Python has drawn it for the selected point. Names are
// inserted only as text (textContent), never as markup.
(() => {
  const content = JSON.parse(document.getElementById("numbers").textContent);
  const get = (id) => document.getElementById(id);
  const { names, pairs, lam, q, decimals, fields } = content;
  const state = { i: content.start[0], j: content.start[1], rule: 0, pair: content.pair, rows: content.rows };
  const sliders = { lam: get("lam"), q: get("q") };
  const lines = [...document.querySelectorAll("#graph .edge")];
  const nodes = [...document.querySelectorAll("#graph .node")];
  const here = () => state.i * q.length + state.j;
  const value = (name, k, cell = here()) => fields[name][cell][k];
  const isEdge = (k, cell = here()) => Boolean((fields.edge[cell][k] >> state.rule) & 1);
  const edgesInPage = () => pairs.filter((_, k) => isEdge(k)).length;
  const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(decimals);
  const percent = (p) => (p > 0.995 && p < 1 ? ">99" : p > 0 && p < 0.005 ? "<1" : Math.round(100 * p)) + " %";
  const short = (x) => String(Number(x.toPrecision(3)));
  const label = (k) => `${names[pairs[k][0]]} – ${names[pairs[k][1]]}`;
  const sign = (k) => (value("association", k) < 0 ? "negative" : "positive");
  const setText = (id, text) => { if (get(id)) get(id).textContent = text; };
  const setAttributes = (element, attributes) => {
    for (const [name, each] of Object.entries(attributes)) element.setAttribute(name, each);
  };

  function drawNetwork() {
    const degree = new Map();
    lines.forEach((line) => {
      const k = Number(line.dataset.pair), on = isEdge(k);
      line.setAttribute("class", `edge ${sign(k)}${on ? "" : " off"}${k === state.pair ? " chosen" : ""}`);
      line.setAttribute("stroke-width", (1.2 + 8.8 * Math.min(1, Math.abs(value("association", k)) / content.widest)).toFixed(2));
      if (on) for (const node of pairs[k].slice(0, 2)) degree.set(node, (degree.get(node) || 0) + 1);
    });
    nodes.forEach((node) => {
      const alone = !degree.has(Number(node.dataset.node));
      node.classList.toggle("alone", alone);
      node.classList.toggle("off", alone && content.blanket && !node.classList.contains("query"));
    });
  }

  function drawHere() {
    const point = content.points[here()], count = point.n_edges[state.rule], kept = edgesInPage();
    setText("here-lam", short(lam[state.i]));
    setText("here-q", short(q[state.j]));
    setText("here-edges", `${count} of ${content.n_pairs} pairs` + (kept < count ? ` (${kept} of them are drawn)` : ""));
    setText("here-evidence", point.evidence);
    setText("here-fdr", percent(point.expected_fdr[state.rule]));
    setText("here-badge", point.verdict_name);
    if (get("here-badge")) get("here-badge").className = `badge ${point.verdict}`;
    setText("here-text", point.trust);
    setText("rule-text", `At λ = ${short(lam[state.i])}, q = ${short(q[state.j])}, an edge is: ${point.rule[state.rule]}.`);
    for (const [name, axis, k] of [["lam", lam, state.i], ["q", q, state.j]]) {
      if (!sliders[name]) continue;
      sliders[name].value = k;
      sliders[name].setAttribute("aria-valuetext", short(axis[k]));
      setText(`${name}-value`, short(axis[k]));
    }
    get("home").disabled = state.i === content.start[0] && state.j === content.start[1];
    for (const cursor of document.querySelectorAll("rect.cursor")) {
      const cell = cursor.parentNode.querySelector(`[data-i="${state.i}"][data-j="${state.j}"] rect`);
      for (const side of ["x", "y"]) cursor.setAttribute(side, cell.getAttribute(side));
    }
  }

  function wanted() {
    const text = get("find").value.trim().toLowerCase();
    const order = pairs.map((_, k) => k).filter((k) => (get("all").checked || isEdge(k)) &&
      (!text || pairs[k].slice(0, 2).some((node) => names[node].toLowerCase().includes(text))));
    const size = (k) => Math.abs(value("association", k));
    return order.sort((a, b) => isEdge(b) - isEdge(a) || size(b) - size(a) || a - b);
  }

  function drawTable() {
    const order = wanted(), shown = order.slice(0, state.rows), body = get("table").tBodies[0];
    const x = (number) => `${(50 * (1 + Math.max(-1, Math.min(1, number / content.limit)))).toFixed(2)}%`;
    body.replaceChildren(...shown.map((k) => {
      const row = get("row").content.firstElementChild.cloneNode(true), find = (name) => row.querySelector(`.${name}`);
      const [low, high, mean] = ["lower", "upper", "association"].map((name) => value(name, k));
      row.dataset.pair = k;
      row.className = `${isEdge(k) ? "edge-row" : "none"}${k === state.pair ? " chosen" : ""}`;
      row.querySelectorAll("bdi").forEach((each, end) => { each.textContent = names[pairs[k][end]]; });
      setAttributes(find("whisker"), { x1: x(low), x2: x(high), class: `whisker ${sign(k)}` });
      setAttributes(find("dot"), { cx: x(mean), class: `dot ${sign(k)}` });
      find("mean-value").textContent = signed(mean);
      find("interval-value").textContent = `${signed(low)} … ${signed(high)}`;
      find("sign-value").textContent = percent(Math.max(value("p_positive", k), 1 - value("p_positive", k)));
      find("large-value").textContent = percent(value("edge_probability", k));
      if (find("measure")) find("measure").textContent = content.measures[pairs[k][2]];
      return row;
    }));
    const [one, many] = get("all").checked ? ["pair", "pairs"] : ["edge", "edges"], count = content.points[here()].n_edges[state.rule], kept = edgesInPage();
    const listed = order.length > shown.length ? `The ${shown.length} strongest of ${order.length} ${many} are listed.`
      : order.length ? `${order.length} ${order.length === 1 ? one : many}.` : `No ${many} here.`;
    setText("more", listed + (kept < count ? ` This page holds ${kept} of the ${count} edges of this point.` : ""));
    get("rest").hidden = order.length <= shown.length;
  }

  // Curves along λ (along q if λ has a single value), in the frame that Python has drawn.
  function drawCurve(id, line, band) {
    const frame = content.frames[id], along = content.along === "lam";
    if (!frame || !get(id)) return;
    const cells = (along ? lam : q).map((_, k) => (along ? k * q.length + state.j : state.i * q.length + k));
    const y = (number) => {
      const share = (Math.max(frame.low, Math.min(frame.high, number)) - frame.low) / (frame.high - frame.low);
      return frame.bottom + share * (frame.top - frame.bottom);
    };
    const point = (number, k) => `${frame.x[k]} ${y(number).toFixed(1)}`;
    const centre = cells.map(line), k = along ? state.i : state.j;
    get(id).querySelector(".line").setAttribute("d", "M" + centre.map(point).join("L"));
    setAttributes(get(id).querySelector("line.now"), { x1: frame.x[k], x2: frame.x[k] });
    setAttributes(get(id).querySelector("circle.now"), { cx: frame.x[k], cy: y(centre[k]).toFixed(1) });
    if (!band) return;
    const [low, high] = band.map((side) => cells.map(side).map(point));
    get(id).querySelector(".band").setAttribute("d", "M" + low.concat(high.reverse()).join("L") + "Z");
  }

  function drawCurves() {
    const k = state.pair, at = (name) => (cell) => value(name, k, cell);
    if (k !== null) drawCurve("pair-curve", at("association"), [at("lower"), at("upper")]);
    if (k !== null) setText("pair-name", label(k));
    drawCurve("evidence-curve", (cell) => content.points[cell].below);
    setText("curve-at", content.along === "lam" ? `q = ${short(q[state.j])}` : `λ = ${short(lam[state.i])}`);
  }

  function draw() { drawNetwork(); drawHere(); drawTable(); drawCurves(); }

  function save(name, kind, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: kind }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function table() {
    const quote = (text) => `"${String(text).replaceAll('"', '""')}"`;
    const columns = ["association", "lower", "upper", "p_positive", "edge_probability"];
    const head = ["first", "second", "measure", "edge", ...columns, "lam", "q"];
    const rows = wanted().map((k) => [quote(names[pairs[k][0]]), quote(names[pairs[k][1]]), content.measures[pairs[k][2]],
      isEdge(k), ...columns.map((name) => value(name, k)), lam[state.i], q[state.j]]);
    return [head, ...rows].map((row) => row.join(",")).join("\n") + "\n";
  }

  function picture() {
    const copy = get("graph").cloneNode(true), originals = get("graph").querySelectorAll("*");
    copy.querySelectorAll("*").forEach((element, k) => {
      const style = getComputedStyle(originals[k]);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "paint-order", "display", "font-family"]) {
        element.style.setProperty(name, style.getPropertyValue(name));
      }
    });
    copy.querySelectorAll(".off").forEach((element) => element.remove());
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    return new XMLSerializer().serializeToString(copy);
  }

  for (const [name, key] of [["lam", "i"], ["q", "j"]]) {
    if (sliders[name]) sliders[name].addEventListener("input", (event) => { state[key] = Number(event.target.value); draw(); });
  }
  get("rule").addEventListener("change", (event) => { state.rule = Number(event.target.value); draw(); });
  get("home").addEventListener("click", () => { [state.i, state.j] = content.start; draw(); });
  get("find").addEventListener("input", drawTable);
  get("all").addEventListener("change", drawTable);
  get("rest").addEventListener("click", () => { state.rows = Infinity; drawTable(); });
  get("csv").addEventListener("click", () => save("edges.csv", "text/csv", table()));
  get("svg").addEventListener("click", () => save("network.svg", "image/svg+xml", picture()));
  get("controls").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("click", (event) => {
    const at = (selector) => event.target.closest(selector);
    if (at(".cell")) {
      [state.i, state.j] = [Number(at(".cell").dataset.i), Number(at(".cell").dataset.j)];
      draw();
    } else if (at(".node")) {
      get("find").value = names[Number(at(".node").dataset.node)];
      drawTable();
    } else if (at("[data-pair]")) {
      const inTable = at("#table");
      state.pair = Number(at("[data-pair]").dataset.pair);
      draw();
      // The table was replaced: the row keeps the keyboard focus.
      const again = get("table").querySelector(`tr[data-pair="${state.pair}"] button`);
      if (inTable && again) again.focus({ preventScroll: true });
    }
  });

  get("names").append(...names.map((name) => Object.assign(document.createElement("option"), { value: name })));
  document.documentElement.classList.add("js");
  get("controls").hidden = false;
  document.querySelector(".tools").hidden = false;
  // A browser may restore the controls of an earlier visit; the page starts at the selected point.
  get("rule").value = 0;
  draw();
})();
