"use strict";
// The list of everything: small pictures, search, filters and order; what is chosen stands in the address.
(() => {
  const list = document.getElementById("list");
  const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

  function draw(canvas) {
    const [width, cells] = canvas.dataset.map.split(":");
    canvas.width = Number(width);
    canvas.height = cells.length / canvas.width;
    const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
    [...cells].forEach((cell, i) => {
      const level = LEVELS.indexOf(cell);
      const rgb = level >= 0 ? site.color("plain", level / 63) : cell === "!" ? [160, 40, 40] : [128, 128, 128];
      image.data.set([...rgb, level >= 0 || cell === "!" ? 255 : 60], 4 * i);
    });
    pen.putImageData(image, 0, 0);
  }
  if (!list) return;
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      draw(entry.target);
      near.unobserve(entry.target);
    }
  }, { rootMargin: "400px" });
  list.querySelectorAll("canvas").forEach((canvas) => near.observe(canvas));

  const body = list.tBodies[0], rows = [...body.rows], first = new Map(rows.map((row, i) => [row, i]));
  const text = new Map(rows.map((row) => [row, `${row.textContent} ${row.dataset.more}`.toLowerCase()]));
  const boxes = [...document.querySelectorAll("[data-filter]")], search = document.getElementById("search");
  const from = document.getElementById("from"), to = document.getElementById("to");
  const heads = [...list.querySelectorAll("[data-sort]")];
  const FEW = 60, more = document.getElementById("more"); // entries that are shown before all are asked for
  let order = "", down = false, all = false;

  function read() {
    const asked = site.asked();
    search.value = asked.get("q") || "";
    for (const box of boxes) {
      const wanted = asked.get(box.dataset.filter) || "";
      box.value = [...box.options].some((option) => option.value === wanted) ? wanted : "";
    }
    from.value = asked.get("from") || "";
    to.value = asked.get("to") || "";
    const sort = asked.get("sort") || "";
    down = sort.startsWith("-");
    order = heads.some((head) => head.dataset.sort === sort.replace("-", "")) ? sort.replace("-", "") : "";
    show();
  }

  function write() {
    const told = new URLSearchParams();
    const values = [["q", search.value], ...boxes.map((box) => [box.dataset.filter, box.value]),
      ["from", from.value], ["to", to.value], ["sort", order && (down ? "-" : "") + order]];
    for (const [name, value] of values) if (value) told.set(name, value);
    history.replaceState(null, "", told.size ? `#${told}` : location.pathname + location.search);
    show();
  }

  function fits(row) {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), date = row.dataset.date;
    return words.every((word) => text.get(row).includes(word))
      && boxes.every((box) => !box.value || row.dataset[box.dataset.filter] === box.value)
      && (!from.value || (date && date >= from.value)) && (!to.value || (date && date <= to.value));
  }

  /** What a row is ordered by: a number where the column has numbers; nothing stands at the end either way. */
  function key(row) {
    if (order === "number") return row.dataset.number === "" ? null : Number(row.dataset.number);
    const told = row.querySelector(`[data-c=${order}]`).textContent.trim();
    return told === "" ? null : order === "seed" && Number.isFinite(Number(told)) ? Number(told) : told;
  }

  function show() {
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null) || first.get(a) - first.get(b);
      const by = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return (down ? -by : by) || first.get(a) - first.get(b);
    };
    const sorted = order ? [...rows].sort(compare) : rows;
    body.append(...sorted);
    let count = 0;
    for (const row of sorted) {
      const fit = fits(row);
      count += fit;
      row.hidden = !fit || (!all && count > FEW);
    }
    more.hidden = all || count <= FEW;
    more.textContent = `Show all ${count}`;
    for (const head of heads) {
      const here = head.dataset.sort === order;
      head.parentElement.setAttribute("aria-sort", here ? (down ? "descending" : "ascending") : "none");
    }
    document.getElementById("count").textContent = count === rows.length ? `${count} entries` : `${count} of ${rows.length} entries`;
  }

  for (const box of [search, from, to, ...boxes]) box.addEventListener("input", write);
  for (const head of heads) {
    head.addEventListener("click", () => {
      if (order === head.dataset.sort) down = !down;
      else [order, down] = [head.dataset.sort, false];
      write();
    });
  }
  more.addEventListener("click", () => {
    all = true;
    show();
    const next = [...body.rows].filter((row) => !row.hidden)[FEW];
    if (next) next.querySelector("a, td").focus();
  });
  document.getElementById("clear").addEventListener("click", () => {
    for (const box of [search, from, to, ...boxes]) box.value = "";
    [order, down] = ["", false];
    write();
  });
  addEventListener("hashchange", read);
  read();
})();
