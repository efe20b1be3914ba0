"use strict";
// Variants against a baseline: curves whose bands are the intervals that stand in the table below.
for (const box of document.querySelectorAll("[data-comparison]")) {
  const data = site.held.get(`comparison/${box.dataset.comparison}`);
  const lines = data.lines.map((line, i) => ({ ...line, color: site.HUES[i % site.HUES.length], gaps: true }));
  lines.push({ label: data.baseline, y: data.x.map(() => (data.ratio ? 1 : 0)), ...site.grey(0) });
  const label = data.ratio ? `ratio to ${data.baseline}` : `difference from ${data.baseline}`;
  site.chart(box, { x: data.x, lines, xLabel: data.axis, yLabel: label, logY: data.ratio, logX: site.wide(data.x), table: false });
}
// Errors over the learning rates that each variant was tuned on.
for (const box of document.querySelectorAll("[data-rates]")) {
  const { rates, lines: compared } = site.held.get(`comparison/${box.dataset.rates}`);
  const hue = (at) => (at < 0 ? site.grey(0) : { color: site.HUES[at % site.HUES.length] }); // that of the curve above
  const lines = rates.lines.map((line) => ({ ...line, ...hue(compared.findIndex((each) => each.label === line.label)) }));
  site.chart(box, { x: rates.x, lines, xLabel: "factor of the preset's learning rates", yLabel: rates.measure, logY: rates.log, logX: 2, table: false });
}
