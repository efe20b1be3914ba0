"use strict";
// What every page shares: data that scripts hand over, numbers in words, colours, and the search box above.
const site = (() => {
  const held = new Map();
  const root = document.documentElement.dataset.root || "";

  /** Called by the files in data/: keeps what they bring. */
  function put(kind, name, value) {
    held.set(`${kind}/${name}`, value);
  }

  /** Makes an element: properties, then children; text is text, never markup. */
  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element && name !== "list") element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  /** A labelled choice of [value, words]; what is chosen goes to ``change``. */
  function pick(label, values, chosen, change) {
    const select = make("select", {}, ...values.map(([value, text]) => make("option", { value }, text)));
    select.value = chosen;
    select.addEventListener("input", () => change(select.value));
    return make("label", {}, label, select);
  }

  /** Two digits that fit a cell: 0.0083, 0.12, 3.4, 56, 1.2k. */
  function short(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "";
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
    const size = Math.abs(value), sign = value < 0 ? "−" : "";
    if (value === 0) return "0";
    if (size < 0.00995) return sign + size.toExponential(1).replace("e-", "e−");
    if (size < 0.995) return sign + String(Number(size.toPrecision(2)));
    if (size < 9.95) return sign + size.toFixed(1);
    if (size < 999.5) return sign + size.toFixed(0);
    if (size < 999500) return sign + (size / 1000).toFixed(size < 9950 ? 1 : 0) + "k";
    return sign + size.toExponential(1);
  }

  /** Four digits, for what is read one at a time. */
  const plain = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(4))) : short(value));

  /** A value of a data file: numbers that have no end come as text. */
  const number = (value) => (value === "inf" ? Infinity : value === "-inf" ? -Infinity : value);

  /** Where a cell stands in the list of a grid, the last axis fastest; `place` holds an index of each axis by its name. */
  const flat = (axes, place) => axes.reduce((sum, axis) => sum * axis.values.length + place[axis.name], 0);

  // Viridis, at equal steps; between them straight lines.
  const STOPS = ["440154", "472c7a", "3b518b", "2c718e", "21908d", "27ad81", "5cc863", "aadc32", "fde725"];
  /** The colour at a share from 0 to 1, as [red, green, blue]. */
  function color(share) {
    const at = Math.min(1, Math.max(0, share)) * (STOPS.length - 1);
    const low = Math.min(STOPS.length - 2, Math.floor(at)), part = at - low;
    const rgb = (text) => [0, 2, 4].map((i) => parseInt(text.slice(i, i + 2), 16));
    const [a, b] = [rgb(STOPS[low]), rgb(STOPS[low + 1])];
    return a.map((value, i) => Math.round(value + part * (b[i] - value)));
  }
  const css = (rgb) => `rgb(${rgb.join(" ")})`;
  /** Black or white, whichever is read more easily on a colour. */
  function ink(rgb) {
    const [r, g, b] = rgb.map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
  }

  const scheme = matchMedia("(prefers-color-scheme: dark)");
  /** A normalizer's colour as it can be seen on this paper. */
  function seen(hex) {
    if (!scheme.matches) return hex;
    const rgb = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    const light = (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]) / 255;
    const share = light < 0.1 ? 0.9 : light < 0.5 ? 0.5 * (1 - light) : 0;
    return "#" + rgb.map((v) => Math.round(v + share * (255 - v)).toString(16).padStart(2, "0")).join("");
  }

  /** What stands after # as name=value. */
  const asked = () => new URLSearchParams(location.hash.slice(1));

  document.addEventListener("submit", (event) => {
    if (!event.target.matches(".find")) return;
    event.preventDefault();
    const words = new URLSearchParams({ q: event.target.elements.q.value });
    location.href = `${root}runs.html#${words}`;
  });

  return { put, make, pick, short, plain, number, flat, color, css, ink, seen, scheme, asked, held };
})();
