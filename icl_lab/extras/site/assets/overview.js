"use strict";
// A table of rows: order, and where the page has them search, filters and an overlay; what is chosen stands in the address.
(() => {
  const list = document.getElementById("list");
  if (!list) return;
  const { few, what } = list.dataset, FEW = Number(few); // rows that are shown before all are asked for
  const one = (id) => document.getElementById(id);
  const more = one("more"), search = one("search"), count = one("count"), overlay = one("overlay");
  const body = list.tBodies[0], rows = [...body.rows], first = new Map(rows.map((row, i) => [row, i]));
  const told = (row, name) => row.querySelector(`[data-c="${name}"]`)?.textContent.trim() ?? "";
  const text = new Map(rows.map((row) => [row, `${row.textContent} ${row.dataset.more || ""}`.toLowerCase()]));
  const boxes = [...document.querySelectorAll("[data-filter]")];
  const heads = [...list.querySelectorAll("[data-sort]")];
  let order = "", down = false, all = false;

  function read() {
    const asked = site.asked(), sort = asked.get("sort") || "", bare = sort.replace("-", "");
    if (search) search.value = asked.get("q") || "";
    for (const box of boxes) {
      const chosen = asked.get(box.dataset.filter) || "";
      box.value = [...box.options].some((option) => option.value === chosen) ? chosen : "";
    }
    down = sort.startsWith("-");
    order = heads.some((head) => head.dataset.sort === bare) ? bare : "";
    show();
  }

  function write() {
    const said = new URLSearchParams();
    const values = [["q", search?.value], ...boxes.map((box) => [box.dataset.filter, box.value]), ["sort", order && (down ? "-" : "") + order]];
    for (const [name, value] of values) if (value) said.set(name, value);
    history.replaceState(null, "", said.size ? `#${said}` : location.pathname + location.search);
    show();
  }

  /** The value of a row to filter by: an attribute of it where it has one, else what its cell says. */
  const value = (row, name) => row.dataset[name] ?? told(row, name);
  function fits(row) {
    const words = (search?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    return words.every((word) => text.get(row).includes(word))
      && boxes.every((box) => !box.value || value(row, box.dataset.filter).split(", ").includes(box.value) || value(row, box.dataset.filter) === box.value);
  }

  /** What a row is ordered by: a number where its cell has or is one; nothing stands at the end either way. */
  function key(row) {
    const shown = row.querySelector(`[data-c="${order}"]`)?.dataset.v ?? told(row, order);
    return shown === "" || shown === "—" ? null : Number.isNaN(Number(shown)) ? shown : Number(shown);
  }

  function compare(a, b) {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return (x === null) - (y === null) || first.get(a) - first.get(b);
    const by = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return (down ? -by : by) || first.get(a) - first.get(b);
  }

  function show() {
    const sorted = order ? [...rows].sort(compare) : rows;
    body.append(...sorted);
    let fitting = 0;
    for (const row of sorted) {
      const fit = fits(row);
      fitting += fit;
      row.hidden = !fit || (!all && fitting > FEW);
    }
    more.hidden = all || fitting <= FEW;
    more.textContent = `Show all ${fitting} ${what}`;
    for (const head of heads) {
      head.parentElement.setAttribute("aria-sort", head.dataset.sort === order ? (down ? "descending" : "ascending") : "none");
    }
    if (count) count.textContent = `${fitting === rows.length ? "" : `${fitting} of `}${rows.length} ${what}`;
  }

  const inputs = search ? [search, ...boxes] : [];
  for (const box of inputs) box.addEventListener("input", write);
  for (const head of heads) {
    head.addEventListener("click", () => {
      [order, down] = [head.dataset.sort, order === head.dataset.sort && !down];
      write();
    });
  }
  // Runs that have pages can be ticked, and drawn on one chart.
  const ticked = new Set();
  for (const row of overlay ? rows : []) {
    const run = row.querySelector('a[href^="runs/"]');
    if (!run) continue;
    const box = site.make("input", { type: "checkbox", "aria-label": `Overlay ${run.textContent}` });
    box.addEventListener("input", () => {
      ticked[box.checked ? "add" : "delete"](run.getAttribute("href").slice("runs/".length, -".html".length));
      overlay.disabled = !ticked.size;
      overlay.textContent = ticked.size ? `Overlay ${ticked.size} run${ticked.size === 1 ? "" : "s"}` : "Overlay ticked runs";
    });
    run.before(box, " ");
  }
  overlay?.addEventListener("click", () => { location.href = `overlay.html#${new URLSearchParams([...ticked].map((id) => ["run", id]))}`; });

  more.addEventListener("click", () => {
    all = true;
    show();
    [...body.rows].filter((row) => !row.hidden)[FEW]?.querySelector("a, td").focus();
  });
  one("clear")?.addEventListener("click", () => {
    for (const box of inputs) box.value = "";
    [order, down] = ["", false];
    write();
  });
  addEventListener("hashchange", read);
  read();
})();
