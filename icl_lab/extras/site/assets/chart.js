"use strict";
// Curves by uPlot, with the same numbers as a table below for those who do not see or point.
(() => {
  const { make, plain, short, seen, scheme } = site;
  const drawn = new Map(); // box -> what redraws it

  /** The colours of the page as they stand now. */
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  /** A number on an axis: every digit that it has, none of its rounding error. */
  const tick = (value) => (value === null ? "" : Math.abs(value) >= 10000 ? `${Number((value / 1000).toPrecision(12))}k` : String(Number(value.toPrecision(12)))).replace("-", "−");
  const WHOLE = Array.from({ length: 30 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)); // between ticks of steps and examples
  const faint = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");

  /**
   * Draws curves into a box.
   * spec: x, lines [{label, y, color, dash, low, high, width, quiet (not in the legend)}], xLabel, yLabel, logX (2: powers of 2), logY, table (false: none), title.
   */
  function chart(box, spec) {
    box.classList.add("chart");
    drawn.set(box, spec);
    draw(box, spec);
  }

  function draw(box, spec) {
    const clean = (values) => values.map((v) => (v === null || v === undefined || !Number.isFinite(v) || (spec.logY && v <= 0) ? null : v));
    const data = [spec.x], series = [{ label: spec.xLabel, value: (_, v) => (v === null ? "–" : plain(v)) }], bands = [];
    for (const line of spec.lines) {
      const color = seen(line.color);
      data.push(clean(line.y));
      series.push({ label: line.label, stroke: color, width: line.width || 2, class: line.quiet ? "off" : undefined, dash: line.dash && line.dash.length ? line.dash : undefined,
        points: { show: spec.x.length < 30 ? undefined : false, size: 5 }, value: (_, v) => (v === null ? "–" : plain(v)), spanGaps: Boolean(line.gaps) });
      if (line.low) {
        const at = data.length;
        data.push(clean(line.high), clean(line.low));
        for (const end of ["high", "low"]) {
          series.push({ label: `${line.label}, ${end} end`, stroke: "transparent", points: { show: false }, width: 0, class: "off" });
        }
        bands.push({ series: [at, at + 1], fill: faint(color, 0.18) });
      }
    }
    const axis = { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 22 };
    const named = (v, splits) => splits.length < 12 || (v > 0 && Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9);
    const logTicks = (_, splits) => splits.map((v) => (named(v, splits) ? tick(v) : ""));
    const decades = (on) => (on ? { grid: { ...axis.grid, filter: (_, splits) => splits.map((v) => (named(v, splits) ? v : null)) } } : {});
    const width = Math.max(260, Math.min(box.clientWidth || 800, 900));
    const options = {
      width, height: Math.round(Math.min(360, Math.max(240, width * 0.45))),
      scales: { x: { time: false, distr: spec.logX ? 3 : 1, log: spec.logX === 2 ? 2 : 10 }, y: { distr: spec.logY ? 3 : 1, range: (_, low, high) => pad(low, high, spec) } },
      axes: [{ ...axis, ...decades(spec.logX), ...(!spec.logX && spec.x.every(Number.isInteger) ? { incrs: WHOLE } : {}), label: spec.xLabel, values: spec.logX ? logTicks : (_, s) => s.map(tick) },
        { ...axis, ...decades(spec.logY), size: 56, values: spec.logY ? logTicks : (_, s) => s.map(tick) }],
      series, bands,
      legend: { live: true, isolate: false },
      cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
    };
    const before = box.querySelector("details");
    const open = before && before.open;
    box.replaceChildren(make("p", { className: "soft across" }, `${spec.yLabel} ↑`));
    const plot = new uPlot(options, data, box);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", `${spec.title || spec.yLabel} against ${spec.xLabel}: ${spec.lines.map((line) => line.label).join(", ")}`);
    // Until somebody points at a place; uPlot clears its legend after its first drawing.
    queueMicrotask(() => plot.setLegend({ idx: spec.x.length - 1 }));
    // The ends of bands are no curves of their own.
    plot.root.querySelectorAll(".u-series.off").forEach((row) => row.remove());
    plot.root.querySelectorAll("th").forEach((head) => { head.scope = "row"; });
    if (spec.table !== false) box.append(numbers(spec, open));
  }

  const DECADES = 9; // what lies further below the greatest value is cut: the rounding of an exact answer, say

  /** Room above and below, from 0 where nothing is below and it is near. */
  function pad(low, high, spec) {
    if (low === null || high === null) return spec.logY ? [0.1, 1] : [0, 1];
    // Ends between two marks (0.0097) or below 1e-16 would make uPlot look for marks for ever.
    if (spec.logY) return uPlot.rangeLog(Math.max(low, high * 10 ** -DECADES, 1e-14), Math.max(high, 1e-13), 10, false);
    const span = high - low || Math.abs(high) || 1;
    return [low >= 0 && low < span ? 0 : low - 0.05 * span, high + 0.05 * span];
  }

  function numbers(spec, open) {
    const head = make("tr", {}, make("th", { scope: "col" }, spec.xLabel), ...spec.lines.map((line) => make("th", { scope: "col" }, line.label)));
    const stride = Math.max(1, Math.ceil(spec.x.length / 60));
    const rows = spec.x.map((x, i) => [x, i]).filter(([, i]) => i % stride === 0 || i === spec.x.length - 1);
    const body = rows.map(([x, i]) => make("tr", {}, make("th", { scope: "row" }, plain(x)), ...spec.lines.map((line) => {
      const value = line.y[i], low = line.low && line.low[i], high = line.high && line.high[i];
      const interval = Number.isFinite(low) && Number.isFinite(high) && low !== null ? ` [${plain(low)}, ${plain(high)}]` : "";
      return make("td", {}, value === null || value === undefined ? "" : plain(value) + interval);
    })));
    const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
    const region = make("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": `Numbers of the curves: ${spec.title || spec.yLabel}` }, table);
    return make("details", { open: Boolean(open) }, make("summary", {}, "As a table"), region);
  }

  const again = () => drawn.forEach((spec, box) => { if (box.isConnected) draw(box, spec); });
  scheme.addEventListener("change", again);
  let last = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; again(); } });

  /** Whether values of an axis span so much that a logarithmic one shows them better. */
  const wide = (values) => values.length > 3 && values[0] > 0 && values[values.length - 1] / values[0] > 20;
  /** The colours of lines that no normalizer has given one. */
  const HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a51a3", "#882255"];
  /** How the i-th reference is drawn: grey, told apart by its dashes. */
  const DASHES = [[2, 3], [6, 3], [10, 4], [1, 4], [8, 2, 2, 2], [12, 2]];
  const grey = (i) => ({ color: "#808080", width: 1.2, dash: DASHES[i % DASHES.length] });

  Object.assign(site, { chart, wide, HUES, grey });
})();
