"use strict";
// A heat map as a table: every number is text, every cell can be reached by keyboard, colours come on top.
(() => {
  const { make, short, plain, color, css, ink } = site;
  const MANY = 18; // columns beyond which cells hold no number

  /** Shares from 0 to 1 for values between low and high, by logarithms or not. */
  function scale(low, high, log) {
    const of = log ? Math.log : (value) => value;
    const span = of(high) - of(low) || 1;
    return {
      low, high, log,
      share: (value) => (value === Infinity ? 1 : value === -Infinity || (log && value <= 0) ? 0 : (of(value) - of(low)) / span),
      value: (share) => (log ? Math.exp(of(low) + share * span) : low + share * span),
    };
  }

  /** The scale of some values. */
  function fit(values, log) {
    const known = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
    const low = known.length ? Math.min(...known) : log ? 1 : 0, high = known.length ? Math.max(...known) : 1;
    return scale(low, high > low ? high : log ? low * 1.0001 : low + 1e-9, log);
  }

  function bar(scaled, label) {
    const strip = make("canvas", { width: 256, height: 1 });
    const pen = strip.getContext("2d");
    for (let i = 0; i < 256; i += 1) {
      pen.fillStyle = css(color(i / 255));
      pen.fillRect(i, 0, 1, 1);
    }
    const ticks = make("div", { className: "ticks" });
    for (const at of [0, 0.25, 0.5, 0.75, 1]) {
      const tick = make("span", {}, short(scaled.value(at)));
      tick.style.left = `${100 * at}%`;
      ticks.append(tick);
    }
    return make("div", { className: "bar", role: "img", "aria-label": `Colours: ${label}, from ${plain(scaled.low)} to ${plain(scaled.high)}` },
      strip, ticks, make("span", {}, label + (scaled.log ? " (log colours)" : "")));
  }

  /**
   * Draws a map into a box.
   * spec: title, rows, columns (values), rowLabel, columnLabel, cell(r, c) -> {value, lost, trained, said}, label, log.
   */
  function heatmap(box, spec) {
    const { rows, columns } = spec, cells = rows.map((_, r) => columns.map((_, c) => spec.cell(r, c)));
    const scaled = fit(cells.flat().map((cell) => cell.value).filter((value) => value !== null), spec.log);
    const read = make("p", { className: "read soft", "aria-live": "polite" }, spec.hint || "");
    const table = make("table", { role: "grid", "aria-label": spec.title });
    if (spec.title) table.append(make("caption", {}, spec.title));
    const body = make("tbody"), held = [];
    for (let r = rows.length - 1; r >= 0; r -= 1) { // the smallest row at the bottom, as in the figures
      const line = make("tr", {}, make("th", { scope: "row" }, String(rows[r])));
      const row = [];
      columns.forEach((_, c) => {
        const { value, lost, trained, said } = cells[r][c];
        const td = make("td", { tabIndex: -1 }, value === null ? "" : short(value));
        td.setAttribute("role", "gridcell");
        if (value === null) td.className = "none";
        else {
          const rgb = color(scaled.share(value));
          td.style.backgroundColor = css(rgb);
          td.style.color = ink(rgb);
          if (lost || !Number.isFinite(value)) td.classList.add("lost");
        }
        if (trained) td.classList.add("trained");
        const tell = () => { read.textContent = said; };
        td.addEventListener("mouseenter", tell);
        td.addEventListener("focus", tell);
        td.setAttribute("aria-label", value === null ? said : `${short(value)}; ${said}`); // what is seen, then what it is
        row.push(td);
        line.append(td);
      });
      held.push(row);
      body.append(line);
    }
    const foot = make("tr", {}, make("th", { scope: "col" }, make("span", { className: "off" }, spec.rowLabel)), ...columns.map((value) => make("th", { scope: "col" }, String(value))));
    table.append(body, make("tfoot", {}, foot));
    if (held.length && held[0].length) held[held.length - 1][0].tabIndex = 0;
    table.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step || event.target.tagName !== "TD") return;
      event.preventDefault();
      const r = held.findIndex((row) => row.includes(event.target)), c = held[r].indexOf(event.target);
      const next = (held[r + step[0]] || [])[c + step[1]];
      if (!next) return;
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
    const figure = make("div", { className: "heat" + (columns.length > MANY ? " many" : "") },
      make("div", { className: "soft" }, `${spec.rowLabel} ↑ , ${spec.columnLabel} →`),
      make("div", { className: "wide" }, table));
    figure.append(bar(scaled, spec.label), read);
    box.replaceChildren(figure);
  }

  const key = (...parts) => make("p", { className: "key" }, ...parts.map(([kind, words]) => make("span", {}, make("i", { className: kind }), words)));

  Object.assign(site, { heatmap, key });
})();
