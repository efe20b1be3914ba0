"use strict";
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const { frames, layers, heads } = data, two = data.runs.length === 2;
const DIFFERENCE = 2, names = [];

// The page that computes its numbers itself (analyses/attention/live) hangs in here: what it keeps in the address, and
// what it draws. ``stamp`` grows with each of its changes, so that nothing drawn before is taken for what is now there;
// ``remark`` stands on pictures and tables that are taken away, where their numbers are not the stored ones.
const hooks = { recall: [], remember: [], draw: [] };
let stamp = 0, remark = "";

function called(runs) { names.splice(0, names.length, ...runs, ...(two ? [`${runs[1]} − ${runs[0]}`] : [])); }
called(data.runs);

// ---- Numbers: weights and scores of the visible cells, row after row; a frame is one prompt, or a mean over many.

function unpack(part) {
  const text = atob(part.bytes), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const values = new { f4: Float32Array, u2: Uint16Array, u1: Uint8Array }[part.type](bytes.buffer);
  return part.type === "f4" ? values : Float32Array.from(values, level => part.low + part.step * level);
}

function numbers(frame, run, what) {
  const part = frame.runs[run][what];
  return part && (part.values ??= unpack(part));
}

const visible = (frame, i) => data.full ? frame.tokens.length : i + 1; // keys that query i sees, from the first
const before = (frame, i) => data.full ? i * frame.tokens.length : i * (i + 1) / 2; // visible cells above row i of a whole map

function raw(frame, run, what, layer, head, i, j) {
  const above = before(frame, frame.first), size = before(frame, frame.tokens.length) - above;
  return numbers(frame, run, what)[(layer * heads.length + head) * size + before(frame, i) - above + j];
}

function shown(frame, run, layer, head, i, j) {
  if (j >= visible(frame, i)) return undefined; // hidden
  if (run === DIFFERENCE) return shown(frame, 1, layer, head, i, j) - shown(frame, 0, layer, head, i, j);
  if (state.show === "scores") return raw(frame, run, "scores", layer, head, i, j);
  return raw(frame, run, "weights", layer, head, i, j) * (state.show === "times" ? visible(frame, i) : 1);
}

let negative = false; // whether any weight is
function weigh() { negative = frames.some(frame => frame.runs.some((_, run) => numbers(frame, run, "weights").some(w => w < 0))); }
weigh();

// ---- State: what the address after # keeps, and what the pointer is over.

const choices = {
  axis: [...new Set(frames.map(frame => frame.axis))], show: ["weights", "scores", "times"],
  scale: ["auto", "all", "layer", "head", "row"], sort: ["position", "value", "distance"], log: ["auto", "no", "1"], rows: ["", "1"],
};
const state = { axis: "prompt", show: "weights", scale: "auto", sort: "position", log: "auto", rows: "",
                step: 0, layer: 0, head: 0, query: null, key: null };
let over = null;

const along = () => frames.filter(frame => frame.axis === state.axis);
const frame = () => along()[Math.min(state.step, along().length - 1)];
const valued = () => frame().tokens.some(token => token.value !== null);

function cell() { // the cell that is looked at: kept, under the pointer, or the last query
  const last = frame().tokens.length - 1;
  if (state.query !== null) return [state.query, state.key];
  const here = over && over[0] >= frame().first && Math.max(...over) <= last; // a slider may have shortened the prompt
  return here ? over : [last, null];
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const hook of hooks.recall) hook(kept);
  for (const [name, allowed] of Object.entries(choices)) if (allowed.includes(kept.get(name))) state[name] = kept.get(name);
  const bounds = { step: along().length, layer: layers.length, head: heads.length };
  for (const [name, bound] of Object.entries(bounds)) {
    const value = Number(kept.get(name) ?? state[name]);
    if (Number.isInteger(value) && value >= 0 && value < bound) state[name] = value;
  }
  const [query, key] = [Number(kept.get("query") ?? NaN), Number(kept.get("key") ?? NaN)];
  const there = Number.isInteger(query) && Number.isInteger(key)
    && query >= frame().first && query < frame().tokens.length && key >= 0 && key < visible(frame(), query);
  [state.query, state.key] = there ? [query, key] : [null, null];
}

function remember() {
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== null && value !== "") kept.set(name, value);
  for (const hook of hooks.remember) hook(kept);
  try { history.replaceState(null, "", "#" + kept); } catch { /* a page inside a notebook has no address */ }
}

// ---- Order, scale and colour.

function sortable(key, query) { // the number that a key is sorted by; a label of an example goes with its input
  const tokens = frame().tokens, input = token => tokens.find(other => other.role === "x" && other.index === token.index) ?? token;
  return state.sort === "value" ? tokens[key].value : Math.abs(input(tokens[key]).value - input(tokens[query]).value);
}

function order() {
  // Not by the query under the pointer: columns would run away from it.
  const keys = frame().tokens.map((_, key) => key), query = state.query ?? keys.length - 1;
  if (state.sort === "position" || !valued()) return keys;
  const by = keys.map(key => sortable(key, query));
  return keys.sort((a, b) => by[a] - by[b] || a - b);
}

const LONG = 64; // tokens from which on most weights are too small to be seen beside the greatest of all

// What is in force where the choice is automatic; the same for all steps of a slider.
const long = () => Math.max(...along().map(each => each.tokens.length)) >= LONG;
const scaling = () => state.scale !== "auto" ? state.scale : long() ? "row" : "all";
// Differences and scores have both signs, and small ones are to look small.
const logarithmic = run => state.log !== "auto" ? state.log === "1" : long() && run !== DIFFERENCE && state.show !== "scores";

const tops = new Map(); // the end of each colour scale; it holds still while the slider moves

function ends(run, layer, head) { // query -> the end of its colour scale
  const here = frame(), found = [], all = limit(run, layer, head);
  if (scaling() !== "row") return () => all;
  return i => found[i] ??= greatest(here, run, layer, head, i) || 1;
}

function greatest(frame, run, layer, head, i) {
  // A difference is a share of what is compared, so that noise does not look large.
  if (run === DIFFERENCE && scaling() === "row") return Math.max(...[0, 1].map(each => greatest(frame, each, layer, head, i)));
  let most = 0;
  for (let j = 0; j < visible(frame, i); j++) most = Math.max(most, Math.abs(shown(frame, run, layer, head, i, j)) || 0);
  return most;
}

function limit(run, layer, head) { // per row: 1, for colours are shares of the greatest number of a row
  if (scaling() === "row") return 1;
  const only = [scaling() !== "all" ? layer : "", scaling() === "head" ? head : ""];
  const name = [state.axis, state.show, run === DIFFERENCE, ...only].join("|");
  if (!tops.has(name)) {
    let most = 0;
    for (const each of along()) for (const from of run === DIFFERENCE ? [DIFFERENCE] : data.runs.keys())
      for (const l of layers.keys()) for (const h of heads.keys()) {
        if ((only[0] !== "" && l !== layer) || (only[1] !== "" && h !== head)) continue;
        for (let i = each.first; i < each.tokens.length; i++) most = Math.max(most, greatest(each, from, l, h, i));
      }
    tops.set(name, most || 1);
  }
  return tops.get(name);
}

const ramps = Object.fromEntries(Object.entries(data.ramps).map(
  ([name, bytes]) => [name, Uint8Array.from(atob(bytes), letter => letter.charCodeAt(0))]));
const DECADES = 4; // that the logarithmic scale shows
const signed = run => run === DIFFERENCE || state.show === "scores" || negative;

function shade(value, run, end) { // where on its ramp
  const size = Math.min(1, Math.abs(value) / end);
  const far = logarithmic(run) ? Math.max(0, 1 + Math.log10(size) / DECADES) : size;
  return 3 * Math.round(255 * (signed(run) ? 0.5 + 0.5 * Math.sign(value) * far : far));
}

const ramp = run => ramps[signed(run) ? "signed" : "plain"];
const colour = (value, run, end) => ramp(run).subarray(shade(value, run, end), shade(value, run, end) + 3);

const exact = (value, run) => value === 0 && state.show !== "scores" && run !== DIFFERENCE;
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = v => v === undefined ? "hidden" : !Number.isFinite(v) ? "not a number"
  : (v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e5) ? v.toExponential(2) : String(+v.toPrecision(4))).replace("-", "−");

function picture(run, layer, head, keys) { // one pixel a cell: hidden ones clear, exact zeros grey
  const t = frame().tokens.length, rows = t - frame().first, end = ends(run, layer, head);
  const canvas = Object.assign(document.createElement("canvas"), { width: t, height: rows });
  const pen = canvas.getContext("2d"), image = pen.createImageData(t, rows);
  const zero = css("--zero").slice(1).match(/../g).map(pair => parseInt(pair, 16)), colours = ramp(run);
  for (let row = 0, to = 0; row < rows; row++) for (let column = 0; column < t; column++, to += 4) {
    const value = shown(frame(), run, layer, head, row + frame().first, keys[column]);
    if (value === undefined || Number.isNaN(value)) continue;
    const [from, at] = exact(value, run) ? [zero, 0] : [colours, shade(value, run, end(row + frame().first))];
    image.data[to] = from[at]; image.data[to + 1] = from[at + 1]; image.data[to + 2] = from[at + 2]; image.data[to + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

// ---- Pens: the same strokes on a canvas and in an SVG file.

const FONT = "11px system-ui, sans-serif";

function shrunk(pen, smaller) { // where a cell is less than a pixel, pixels are means over cells
  pen.imageSmoothingEnabled = smaller;
  pen.imageSmoothingQuality = "high";
}

function canvasPen(pen) {
  const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 }), hatch = tile.getContext("2d");
  hatch.strokeStyle = css("--hatch");
  for (const shift of [-6, 0, 6]) { hatch.moveTo(shift, 6); hatch.lineTo(shift + 6, 0); }
  hatch.stroke();
  const self = {
    rect(x, y, w, h, fill) { pen.fillStyle = fill; pen.fillRect(x, y, w, h); },
    box(x, y, w, h, ink) { pen.strokeStyle = ink; pen.lineWidth = 1.5; pen.setLineDash([]); pen.strokeRect(x, y, w, h); },
    line(x, y, u, v, ink, dash = []) {
      pen.strokeStyle = ink; pen.lineWidth = 1; pen.setLineDash(dash); pen.beginPath(); pen.moveTo(x, y); pen.lineTo(u, v); pen.stroke();
    },
    dot(x, y, r, ink, hollow = false) {
      pen.beginPath(); pen.arc(x, y, r, 0, 7); pen.setLineDash([]); pen.lineWidth = 1.5; pen.fillStyle = pen.strokeStyle = ink;
      if (hollow) pen.stroke(); else pen.fill();
    },
    text(x, y, text, ink, { align = "start", up = false, bold = false } = {}) {
      pen.save(); pen.translate(x, y); if (up) pen.rotate(-Math.PI / 2);
      pen.font = (bold ? "bold " : "") + FONT; pen.textAlign = align; pen.textBaseline = "middle"; pen.fillStyle = ink;
      pen.fillText(text, 0, 0); pen.restore();
    },
    hatch(x, y, w, h) { self.rect(x, y, w, h, css("--paper")); self.rect(x, y, w, h, pen.createPattern(tile, "repeat")); },
    cells(map) {
      shrunk(pen, map.side * (window.devicePixelRatio || 1) < 1);
      pen.drawImage(map.image, map.left, map.top, map.keys.length * map.side, map.rows * map.side);
    },
  };
  return self;
}

function svgPen(out) {
  const escape = text => String(text).replace(/[&<>"]/g, letter => `&#${letter.charCodeAt(0)};`);
  return {
    rect(x, y, w, h, fill) { out.push(`<rect x="${x}" y="${y}" width="${w}" height="${h}" fill="${fill}" shape-rendering="crispEdges"/>`); },
    box(x, y, w, h, ink) { out.push(`<rect x="${x}" y="${y}" width="${w}" height="${h}" fill="none" stroke="${ink}"/>`); },
    line(x, y, u, v, ink, dash = []) {
      out.push(`<line x1="${x}" y1="${y}" x2="${u}" y2="${v}" stroke="${ink}" stroke-dasharray="${dash}"/>`);
    },
    dot(x, y, r, ink, hollow = false) {
      out.push(`<circle cx="${x}" cy="${y}" r="${r}" fill="${hollow ? "none" : ink}" stroke="${ink}"/>`);
    },
    text(x, y, text, ink, { align = "start", up = false, bold = false } = {}) {
      out.push(`<text transform="translate(${x} ${y})${up ? " rotate(-90)" : ""}" dy="0.35em" fill="${ink}" `
        + `text-anchor="${align === "center" ? "middle" : align}"${bold ? ' font-weight="bold"' : ""}>${escape(text)}</text>`);
    },
    hatch(x, y, w, h) { this.rect(x, y, w, h, "url(#hatch)"); },
    cells(map) {
      for (let row = 0; row < map.rows; row++) map.keys.forEach((key, column) => {
        const value = shown(frame(), map.run, state.layer, state.head, row + frame().first, key);
        if (value === undefined || Number.isNaN(value)) return;
        const fill = exact(value, map.run) ? css("--zero") : `rgb(${colour(value, map.run, map.ends(row + frame().first))})`;
        this.rect(map.left + column * map.side, map.top + row * map.side, map.side, map.side, fill);
      });
    },
  };
}

// ---- One large map: labels, cells, cross hairs and colour bar.

const ruler = document.createElement("canvas").getContext("2d");
const clipped = text => text.length > 28 ? text.slice(0, 27) + "…" : text;
const BAR = 64; // height of the colour bar with its numbers

const NARROW = 320, GAP = 16, LEGIBLE = 4, EDGE = 8; // pixels: a large map, the space between two, a cell, right of the cells

const margins = new Map();

function margin() { // room for the labels
  const { tokens } = frame();
  ruler.font = FONT;
  if (!margins.has(tokens)) margins.set(tokens, Math.max(...tokens.map(token => ruler.measureText(clipped(token.label)).width)) + 10);
  return margins.get(tokens);
}

function arrange() { // as many large maps beside one another as leave their cells legible
  const room = $("maps").clientWidth, words = margin();
  const side = across => ((room - GAP * (across - 1)) / across - words) / frame().tokens.length;
  let across = Math.max(1, Math.min(names.length, Math.floor((room + GAP) / (NARROW + GAP))));
  while (across > 1 && side(across) < LEGIBLE) across--;
  $("maps").style.gridTemplateColumns = `repeat(${across}, minmax(0, 1fr))`;
}

function plan(run, room) {
  const { tokens, first } = frame(), rows = tokens.length - first, words = margin();
  const side = Math.max(0.25, Math.min(40, (room - words - EDGE) / tokens.length, Math.max(LEGIBLE, 640 / rows)));
  const keys = order(), left = words, width = Math.max(left + tokens.length * side + EDGE, left + 230);
  const titles = names.map((_, each) => titled(each, width)), above = words + 10 + 14 * Math.max(...titles.map(lines => lines.length));
  return { run, keys, rows, side, left, top: above, title: titles[run], width, height: above + rows * side + BAR,
           end: limit(run, state.layer, state.head), ends: ends(run, state.layer, state.head) };
}

function titled(run, room) { // the title of a map, on as many lines as it needs
  const lines = [""];
  ruler.font = `bold ${FONT}`;
  for (const word of `${names[run]}, layer ${layers[state.layer]}, head ${heads[state.head]}${remark}`.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (lines.at(-1) && ruler.measureText(longer).width > room) lines.push(word); else lines[lines.length - 1] = longer;
  }
  return lines;
}

function drawMap(pen, map) {
  const { keys, rows, side, left, top, run } = map, { tokens, first } = frame(), ink = css("--ink"), soft = css("--soft");
  const wide = keys.length * side, high = rows * side, every = Math.ceil(12 / side), [query, key] = cell();
  map.title.forEach((line, at) => pen.text(0, 8 + 14 * at, line, ink, { bold: true }));
  pen.hatch(left, top, wide, high);
  pen.cells(map);
  const tone = token => token === query || token === key ? css("--mark") : tokens[token].quiet ? soft : ink;
  keys.forEach((token, column) => {
    if (column % every === 0) pen.text(left + (column + 0.5) * side, top - 5, clipped(tokens[token].label), tone(token), { up: true });
    if (side >= 6) for (let row = 0; row < rows; row++)
      if (exact(shown(frame(), run, state.layer, state.head, row + first, token), run))
        pen.dot(left + (column + 0.5) * side, top + (row + 0.5) * side, Math.min(2, side / 6), ink);
  });
  for (let row = 0; row < rows; row++)
    if ((rows - 1 - row) % every === 0)
      pen.text(left - 5, top + (row + 0.5) * side, clipped(tokens[row + first].label), tone(row + first), { align: "end" });
  pen.box(left, top + (query - first) * side, wide, side, css("--mark"));
  if (key !== null) pen.box(left + keys.indexOf(key) * side, top, side, high, css("--mark"));
  drawBar(pen, map, left, top + high + 16, Math.min(240, Math.max(190, wide)));
}

const what = () => ({ weights: "attention weight", scores: "score q·k / √d", times: "weight × visible keys n" })[state.show];

function drawBar(pen, map, x, y, wide) {
  const sides = signed(map.run), log = logarithmic(map.run), steps = 128;
  const value = part => { // the number that stands at a part of the bar
    const far = sides ? Math.abs(2 * part - 1) : part, sign = sides && part < 0.5 ? -1 : 1;
    return sign * map.end * (log ? 10 ** (DECADES * (far - 1)) : far);
  };
  for (let step = 0; step < steps; step++)
    pen.rect(Math.floor(x + wide * step / steps), y, Math.ceil(wide / steps) + (step < steps - 1), 12, `rgb(${colour(value((step + 0.5) / steps), map.run, map.end)})`);
  for (const part of log ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    pen.line(x + part * wide, y + 12, x + part * wide, y + 16, css("--soft"));
    const least = log && (sides ? part === 0.5 : part === 0);
    const text = (least ? "≤ " : "") + String(+value(part).toPrecision(2)).replace("-", "−");
    pen.text(x + part * wide, y + 23, text, css("--soft"), { align: part === 0 ? "start" : part === 1 ? "end" : "center" });
  }
  const told = map.run === DIFFERENCE ? `difference of ${what()}` : what();
  pen.text(x, y + 38, scaling() === "row" ? `${told} ÷ greatest of its row` : told, css("--soft"));
}

function fit(canvas, width, height) {
  const density = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  Object.assign(canvas, { width: Math.round(width * density), height: Math.round(height * density) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  pen.setTransform(density, 0, 0, density, 0, 0);
  return canvasPen(pen);
}

// ---- Weight against input value; where there is no value, against position.

function points() {
  const [query] = cell(), { tokens, first } = frame(), found = [];
  for (let i = state.rows ? first : query; i <= (state.rows ? tokens.length - 1 : query); i++)
    for (const run of data.runs.keys()) for (let j = 0; j < visible(frame(), i); j++) {
      const x = valued() ? tokens[j].value : j, y = shown(frame(), run, state.layer, state.head, i, j);
      const spread = state.show === "scores" ? undefined : numbers(frame(), run, "spread");
      const wide = spread ? raw(frame(), run, "spread", state.layer, state.head, i, j) * (state.show === "times" ? visible(frame(), i) : 1) : 0;
      if (x !== null && Number.isFinite(y)) found.push({ x, y, run, role: tokens[j].role, wide, key: j });
    }
  return found;
}

function ticks(low, high) {
  const rough = (high - low) / 8 || 1, base = 10 ** Math.floor(Math.log10(rough));
  const step = base * [1, 2, 5, 10].find(times => times * base >= rough), found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found;
}

function drawPoints(pen, width, height) {
  const all = points(), ink = css("--ink"), soft = css("--soft"), [left, right, up, down] = [70, 12, 40, height - 40];
  const xs = all.map(point => point.x), far = Math.max(1, ...xs.map(Math.abs));
  const bent = valued() && far > 12; // inputs that span decades stand on a logarithmic axis with 0 in its middle
  const bend = x => bent ? Math.sign(x) * Math.log10(1 + Math.abs(x)) : x;
  const [lowX, highX] = [Math.min(...xs.map(bend)), Math.max(...xs.map(bend))], padX = 0.06 * (highX - lowX) || 0.5;
  const foot = ({ y, wide }) => negative ? y - wide : Math.max(Math.min(0, y), y - wide); // no weight is below 0
  const tips = all.flatMap(point => [foot(point), point.y + point.wide]);
  const [lowY, highY] = [Math.min(0, ...tips), Math.max(...tips, Math.min(0, ...tips) + 1e-9)], padY = 0.06 * (highY - lowY);
  const X = x => left + (width - left - right) * (bend(x) - lowX + padX) / (highX - lowX + 2 * padX);
  const Y = y => down - (down - up) * (y - lowY + padY) / (highY - lowY + 2 * padY);
  const inside = x => Math.min(width - right, Math.max(left, X(x)));
  if (valued() && data.reach.x) {
    pen.rect(inside(-data.reach.x), up, inside(data.reach.x) - inside(-data.reach.x), down - up, css("--band"));
    pen.text((inside(-data.reach.x) + inside(data.reach.x)) / 2, up - 7, "training", soft, { align: "center" });
    for (const [role, dash] of [["x", [5, 3]], ["y", [1, 3]]]) for (const sign of [-1, 1]) {
      const x = data.reach[role] && X(sign * data.reach[role]);
      if (x > left && x < width - right) pen.line(x, up, x, down, soft, dash);
    }
  }
  pen.line(left, down, width - right, down, soft); pen.line(left, up, left, down, soft);
  for (const y of ticks(lowY, highY)) pen.text(left - 6, Y(y), short(y), soft, { align: "end" });
  const decades = [0, ...[1, 3, 10, 30, 100, 300, 1e3, 1e4, 1e5, 1e6].flatMap(x => [-x, x])];
  let taken = -99;
  for (const x of (bent ? decades.sort((a, b) => a - b) : ticks(lowX, highX)))
    if (X(x) >= left && X(x) <= width - right && X(x) - taken > 30) {
      pen.line(X(x), down, X(x), down + 4, soft); pen.text(X(x), down + 12, short(x), soft, { align: "center" }); taken = X(x);
    }
  pen.text((left + width) / 2, height - 8, valued() ? "number of the key" : "place of the key", ink, { align: "center" });
  pen.text(12, (up + down) / 2, what(), ink, { align: "center", up: true });
  const inks = [css("--one"), css("--two")], [, held] = cell();
  for (const point of all) {
    const { x, y, run, role, wide, key } = point;
    if (wide) pen.line(X(x), Y(foot(point)), X(x), Y(y + wide), inks[run]);
    if (role === "y") pen.rect(X(x) - 3, Y(y) - 3, 6, 6, inks[run]); else pen.dot(X(x), Y(y), 4, inks[run], role !== "x");
    if (key === held) pen.dot(X(x), Y(y), 8, css("--mark"), true);
  }
  let at = left;
  ruler.font = FONT;
  for (const run of data.runs.keys()) {
    pen.dot(at + 5, 10, 4, inks[run]); pen.text(at + 14, 10, names[run], ink); at += ruler.measureText(names[run]).width + 34;
  }
  if (all.some(point => point.role === "y")) pen.text(at, 10, "● input  ■ label", soft);
}

// ---- What the rows add up to, and the tables.

function sums(run, i) {
  const n = visible(frame(), i), weights = Array.from({ length: n }, (_, j) => raw(frame(), run, "weights", state.layer, state.head, i, j));
  const mass = weights.reduce((sum, w) => sum + Math.abs(w), 0) || 1;
  const entropy = -weights.reduce((sum, w) => sum + (w ? Math.abs(w) / mass * Math.log(Math.abs(w) / mass) : 0), 0);
  const largest = weights.reduce((best, w, j) => Math.abs(w) > Math.abs(weights[best]) ? j : best, 0);
  const roles = {};
  weights.forEach((w, j) => { const { role } = frame().tokens[j]; roles[role] = (roles[role] ?? 0) + w; });
  return { sum: short(weights.reduce((sum, w) => sum + w, 0)), "entropy / log n": n > 1 ? short(entropy / Math.log(n)) : "–",
           "effective keys": short(Math.exp(entropy)), "support": `${weights.filter(w => w !== 0).length} of ${n}`,
           largest: `${short(weights[largest])} at ${frame().tokens[largest].label}`,
           ...Object.fromEntries(Object.entries(roles).map(([role, w]) => [`on ${role}`, short(w)])) };
}

function fill(place, caption, head, rows) {
  const table = document.createElement("table"), line = (parent, tag, cells) => {
    const row = parent.insertRow();
    for (const text of cells) row.append(Object.assign(document.createElement(tag), { textContent: text }));
  };
  table.createCaption().textContent = caption;
  line(table.createTHead(), "th", head);
  const body = table.createTBody();
  for (const row of rows) line(body, "td", row);
  for (const name of table.tHead.rows[0].cells) name.scope = "col";
  place.append(table);
}

function fillRow() {
  const [query] = cell(), found = data.runs.map((_, run) => sums(run, query)), head = Object.keys(found[0]);
  $("row").replaceChildren();
  fill($("row"), `Weights of ${frame().tokens[query].label}`, ["run", ...head], found.map((each, run) => [names[run], ...Object.values(each)]));
}

function fillTables() {
  if (!$("table").open) return;
  const { tokens, first } = frame(), keys = order(), long = tokens.length > 64, place = $("tables");
  const queries = long ? [cell()[0]] : tokens.map((_, i) => i).slice(first);
  place.replaceChildren();
  for (const run of names.keys()) {
    const box = Object.assign(document.createElement("div"), { className: "wide" });
    const caption = `${names[run]}, layer ${layers[state.layer]}, head ${heads[state.head]}: ${$("show").selectedOptions[0].text}`;
    const more = run === DIFFERENCE ? [] : ["sum", "entropy / log n", "support", "largest"];
    fill(box, caption + (long ? " (the chosen query; there are too many for a table)" : ""), ["query", ...keys.map(key => tokens[key].label), ...more],
      queries.map(i => [tokens[i].label, ...keys.map(j => short(shown(frame(), run, state.layer, state.head, i, j))), ...more.map(name => sums(run, i)[name])]));
    place.append(box);
  }
}

const number = (run, query, key) => `${names[run]} ${short(shown(frame(), run, state.layer, state.head, query, key))}`;

function tip(event, at) { // beside the pointer: what it is over
  $("tip").hidden = !at;
  if (!at) return;
  const [query, key] = at, { tokens } = frame(), lines = [...names.keys()].map(run => number(run, query, key));
  $("tip").textContent = [`${tokens[query].label} → ${tokens[key].label}`, ...(key >= visible(frame(), query) ? ["hidden from the query"] : lines)].join("\n");
  const { offsetWidth: wide, offsetHeight: high } = $("tip"), root = document.documentElement;
  const [x, y] = [event.clientX + 14, event.clientY + 14];
  $("tip").style.left = `${Math.max(0, Math.min(x, root.clientWidth - wide - 4))}px`;
  $("tip").style.top = `${y + high > root.clientHeight ? Math.max(0, event.clientY - high - 10) : y}px`;
}

function tell() {
  const [query, key] = cell(), { tokens } = frame(), { layer, head } = state;
  if (key === null) { $("readout").textContent = `From ${tokens[query].label}. Point at a cell, or press Shift and an arrow key.`; return; }
  const each = run => number(run, query, key);
  const more = key >= visible(frame(), query) ? "" : ` Scores: ${data.runs.map((_, run) => short(raw(frame(), run, "scores", layer, head, query, key))).join(", ")}.`;
  $("readout").textContent = `From ${tokens[query].label} to ${tokens[key].label}: ${names.map((_, run) => each(run)).join("; ")}.${more}`
    + (state.query === null ? "" : " Kept.");
}

// ---- The page.

let maps = [], thumbs = "";

function build() {
  for (const run of data.runs.keys()) {
    const block = document.createElement("div"), grid = Object.assign(document.createElement("div"), { className: "heads" });
    const side = heads.length > 8 ? 2.6 : 4.6;
    block.className = "wide";
    grid.style.gridTemplateColumns = `auto repeat(${heads.length}, ${side}rem)`;
    const label = text => grid.append(Object.assign(document.createElement("span"), { textContent: text }));
    label(""); heads.forEach(head => label(`head ${head}`));
    for (const layer of layers.keys()) {
      label(`layer ${layers[layer]}`);
      for (const head of heads.keys()) {
        const button = Object.assign(document.createElement("button"), { type: "button" });
        button.setAttribute("aria-label", `${data.runs[run]}, layer ${layers[layer]}, head ${heads[head]}`);
        Object.assign(button.dataset, { run, layer, head });
        button.append(document.createElement("canvas"), document.createElement("small"));
        button.onclick = () => { Object.assign(state, { layer, head }); draw(); };
        grid.append(button);
      }
    }
    block.append(document.createElement("h3"), grid);
    $("grid").append(block);
  }
  for (const run of names.keys()) {
    const box = document.createElement("div"), canvas = document.createElement("canvas");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.dataset.run = run;
    const under = event => {
      const map = maps[run], row = Math.floor((event.offsetY - map.top) / map.side), column = Math.floor((event.offsetX - map.left) / map.side);
      return row < 0 || row >= map.rows || !(column in map.keys) ? null : [row + frame().first, map.keys[column]];
    };
    canvas.onpointermove = event => { over = under(event); tip(event, over); if (state.query === null) look(); };
    canvas.onpointerleave = event => { over = null; tip(event, null); if (state.query === null) look(); };
    canvas.onclick = event => {
      const at = under(event);
      if (!at || at[1] >= visible(frame(), at[0])) return;
      [state.query, state.key] = state.query === at[0] && state.key === at[1] ? [null, null] : at;
      draw();
    };
    box.append(canvas); $("maps").append(box);
  }
  for (const axis of choices.axis) $("axis").append(new Option(axis === "prompt" ? "this prompt" : `mean over ${data.means}, by ${data.axes[axis]}`, axis));
}

function draw() { // everything: after a change of numbers, colours, head or size
  const steps = along();
  state.step = Math.min(state.step, steps.length - 1);
  if (state.query !== null && !(state.query >= frame().first && state.query < frame().tokens.length)) state.query = state.key = null;
  const keys = order();
  for (const name of ["axis", "show", "scale", "sort"]) $(name).value = state[name];
  $("log").checked = logarithmic(0); $("rows").checked = !!state.rows;
  $("sort").disabled = !valued();
  $("sliding").hidden = steps.length < 2;
  $("step").max = steps.length - 1; $("step").value = state.step;
  $("along").textContent = data.axes[state.axis] ?? ""; $("stepped").textContent = short(frame().value);
  $("scale").options[0].text = `automatic: ${scaling() === "row" ? "per row" : "one for all"}`;
  $("whose").textContent = state.axis === "prompt" ? "Prediction and truth of this prompt"
    : "Prediction and truth of the prompt itself; the maps show means over other prompts";
  $("chosen").textContent = `Layer ${layers[state.layer]}, head ${heads[state.head]}`;
  $("grid").querySelectorAll("h3").forEach((title, run) => { title.textContent = names[run]; });
  const face = JSON.stringify([{ ...state, layer: 0, head: 0, rows: 0, query: 0, key: 0 }, keys, css("--zero"), stamp]);
  const stale = thumbs !== face;
  thumbs = face;
  for (const button of $("grid").querySelectorAll("button")) {
    const [run, layer, head] = ["run", "layer", "head"].map(name => Number(button.dataset[name])), canvas = button.firstChild;
    const chosen = layer === state.layer && head === state.head;
    button.setAttribute("aria-pressed", chosen);
    button.tabIndex = chosen ? 0 : -1;
    if (!stale) continue;
    const image = picture(run, layer, head, keys), pen = canvas.getContext("2d");
    Object.assign(canvas, { width: 140, height: Math.max(12, Math.round(140 * image.height / image.width)) });
    canvasPen(pen).hatch(0, 0, canvas.width, canvas.height);
    shrunk(pen, image.width > canvas.width);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  }
  describe();
  for (const canvas of $("maps").querySelectorAll("canvas")) {
    const run = Number(canvas.dataset.run);
    canvas.setAttribute("aria-label", `${names[run]}: ${$("show").selectedOptions[0].text} of layer ${layers[state.layer]}, head ${heads[state.head]}; as a table below`);
  }
  for (const hook of hooks.draw) hook();
  look();
}

// ---- What each head does, in words: of the prompt, whose shares stand in the data or are computed by the live page.

let patterns = data.patterns.shares; // by run, layer and head: a share for each pattern

function pattern(run, layer, head) { // [a few letters, a sentence]; nothing of means, and of prompts too short to tell
  const found = state.axis === "prompt" ? patterns[run]?.[layer]?.[head] : null;
  if (!found) return ["", ""];
  const [mostly, partly] = data.patterns.bounds, best = found.indexOf(Math.max(...found)), share = `${Math.floor(100 * found[best] + 1e-6)} %`; // 24.6 is no quarter
  const [sentence, letters] = data.patterns.words[best];
  if (found[best] >= partly) return [`${letters} ${share}`, `${found[best] >= mostly ? "" : "partly "}${sentence}, with ${share} of its weight`];
  return ["spread", `spreads its weight: no pattern has a quarter of it (${letters} ${share})`];
}

function describe() {
  for (const button of $("grid").querySelectorAll("button")) {
    const [letters, sentence] = pattern(...["run", "layer", "head"].map(name => Number(button.dataset[name])));
    button.lastChild.textContent = letters;
    button.title = sentence;
  }
  $("pattern").textContent = names.slice(0, data.runs.length).map((name, run) => [name, pattern(run, state.layer, state.head)[1]])
    .filter(([, sentence]) => sentence).map(([name, sentence]) => `In ${name} it ${sentence}.`).join(" ");
  $("legend").hidden = !$("pattern").textContent;
}

function look() { // what depends on the cell that is looked at
  arrange();
  for (const canvas of $("maps").querySelectorAll("canvas")) {
    const run = Number(canvas.dataset.run), map = plan(run, canvas.parentElement.clientWidth);
    map.image = maps[run]?.image;
    const face = [JSON.stringify({ ...state, query: 0, key: 0 }), map.keys, css("--zero"), stamp].join();
    if (maps[run]?.face !== face) map.image = picture(run, state.layer, state.head, map.keys);
    maps[run] = Object.assign(map, { face });
    drawMap(fit(canvas, map.width, map.height), map);
  }
  const width = Math.min(720, $("row").clientWidth || 720);
  drawPoints(fit($("scatter"), width, 300), width, 300);
  $("scatter").setAttribute("aria-label", `${$("show").selectedOptions[0].text} of ${frame().tokens[cell()[0]].label} against the number of the key`);
  $("against").textContent = `Against the ${valued() ? "input value" : "place of the key"}`;
  $("band").textContent = valued() && data.reach.x ? `Shaded: 99 of 100 training inputs, up to ${short(data.reach.x)} in size`
    + (data.reach.y ? `; dotted: labels, up to ${short(data.reach.y)}.` : ".") : frame().runs[0].spread ? `Bars: one standard deviation over the prompts${negative ? "" : ", cut at 0"}.` : "";
  tell(); fillRow(); fillTables(); remember();
}

function press(event) { // keys of the maps: where they have the focus, or where nothing has and the page needs them not
  const inside = ["grid", "maps"].some(place => $(place).contains(document.activeElement));
  const near = ["grid", "maps"].some(place => $(place).matches(":hover"));
  const idle = document.activeElement === document.body && !(event.altKey || event.ctrlKey || event.metaKey);
  if (inside || (idle && (near || event.shiftKey || !["ArrowUp", "ArrowDown"].includes(event.key)))) move(event);
}

function move(event) {
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  if (event.key === "Escape") { [state.query, state.key] = [null, null]; draw(); return; }
  if (!steps) return;
  event.preventDefault();
  if (event.shiftKey) {
    const [query, key] = cell(), keys = order(), last = frame().tokens.length - 1;
    state.query = clamp(query + steps[0], frame().first, last);
    const places = keys.filter(each => each < visible(frame(), state.query)), at = places.indexOf(key);
    state.key = places[at < 0 ? places.length - 1 : clamp(at + steps[1], 0, places.length - 1)];
    draw(); return;
  }
  state.layer = clamp(state.layer + steps[0], 0, layers.length - 1);
  state.head = clamp(state.head + steps[1], 0, heads.length - 1);
  draw();
  const focus = document.activeElement.dataset;
  if (focus?.layer !== undefined) $("grid").querySelector(`button[data-run="${focus.run}"][data-layer="${state.layer}"][data-head="${state.head}"]`).focus();
}

// ---- Files to take away.

function save(kind, blob) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `attention-layer-${layers[state.layer]}-head-${heads[state.head]}.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function onWhite(make) { // pictures to take away are for paper, whatever the scheme of the browser
  document.documentElement.classList.add("printing");
  draw();
  make();
  document.documentElement.classList.remove("printing");
  draw();
}

function sheet(make) { // the large maps in a row, the points below
  const width = maps.reduce((sum, map) => sum + map.width + 24, 16), high = Math.max(...maps.map(map => map.height));
  return make(Math.max(width, 560), high + 340, (pen, shift) => {
    let x = 16;
    for (const map of maps) { shift(x, 16, () => drawMap(pen, map)); x += map.width + 24; }
    shift(16, high + 32, () => drawPoints(pen, 540, 300));
  });
}

function png() {
  sheet((width, height, paint) => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height }), pen = canvas.getContext("2d");
    pen.scale(2, 2); pen.fillStyle = css("--paper"); pen.fillRect(0, 0, width, height);
    paint(canvasPen(pen), (x, y, inside) => { pen.save(); pen.translate(x, y); inside(); pen.restore(); });
    canvas.toBlob(blob => save("png", blob));
  });
}

function svg() {
  sheet((width, height, paint) => {
    const out = [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="sans-serif" font-size="11">`,
      `<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" stroke="${css("--hatch")}"/></pattern></defs>`,
      `<rect width="100%" height="100%" fill="${css("--paper")}"/>`];
    paint(svgPen(out), (x, y, inside) => { out.push(`<g transform="translate(${x} ${y})">`); inside(); out.push("</g>"); });
    save("svg", new Blob([...out, "</svg>"], { type: "image/svg+xml" }));
  });
}

function csv() {
  const quote = text => `"${String(text).replaceAll('"', '""')}"`, { tokens, first } = frame(), { layer, head } = state;
  const lines = ["run,layer,head,query,key,query_token,key_token,weight,score"];
  for (const run of data.runs.keys()) for (let i = first; i < tokens.length; i++) for (let j = 0; j < visible(frame(), i); j++)
    lines.push([quote(names[run] + remark), layers[layer], heads[head], i, j, quote(tokens[i].label), quote(tokens[j].label),
      raw(frame(), run, "weights", layer, head, i, j), raw(frame(), run, "scores", layer, head, i, j)].join());
  save("csv", new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
}

function begin() {
  build(); recall(); draw();
  for (const name of ["axis", "show", "scale", "sort"]) $(name).onchange = event => { state[name] = event.target.value; draw(); };
  $("log").onchange = event => { state.log = event.target.checked ? "1" : "no"; draw(); };
  $("rows").onchange = event => { state.rows = event.target.checked ? "1" : ""; draw(); };
  $("axis").addEventListener("change", () => { Object.assign(state, { query: null, key: null }); draw(); });
  $("step").oninput = event => { state.step = Number(event.target.value); draw(); };
  for (const form of document.forms) form.onsubmit = event => event.preventDefault();
  document.onkeydown = press;
  Object.assign($("png"), { onclick: () => onWhite(png) }); Object.assign($("svg"), { onclick: () => onWhite(svg) }); Object.assign($("csv"), { onclick: csv });
  $("table").ontoggle = fillTables;
  window.onhashchange = () => { recall(); draw(); };
  window.onresize = draw;
  matchMedia("(prefers-color-scheme: dark)").onchange = draw;
  window.onbeforeprint = () => { document.documentElement.classList.add("printing"); draw(); };
  window.onafterprint = () => { document.documentElement.classList.remove("printing"); draw(); };
}

// For a console: the visible weights or scores of this prompt, row after row, by run, layer and head counted from 0.
window.attention = (run, layer, head, what = "weights") => frames[0].tokens.map((_, i) => i).slice(frames[0].first).map(
  i => Array.from({ length: visible(frames[0], i) }, (_, j) => raw(frames[0], run, what, layer, head, i, j)));
