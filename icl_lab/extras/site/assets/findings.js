"use strict";
// All claims: those of one verdict, or with some words.
(() => {
  const verdict = document.getElementById("verdict"), search = document.getElementById("search");
  if (!verdict) return;
  const order = document.getElementById("order"), papers = [...document.querySelectorAll(".paper")];
  const items = [...document.querySelectorAll(".findings li")];

  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const item of items) {
      const badge = item.querySelector(".badge").textContent, text = item.textContent.toLowerCase();
      item.hidden = (verdict.value && badge !== verdict.value) || !words.every((word) => text.includes(word));
    }
    for (const paper of papers) {
      paper.hidden = !paper.querySelector("li:not([hidden])");
      if (verdict.value || words.length) paper.open = true;
    }
    const count = items.filter((item) => !item.hidden).length;
    document.getElementById("count").textContent = `${count} of ${items.length} claims`;
  }
  order.addEventListener("input", () => {
    const seeds = (item) => Number(item.dataset.seeds), first = new Map(items.map((item, i) => [item, i]));
    const sorted = [...items].sort((a, b) => (order.value ? seeds(b) - seeds(a) : 0) || first.get(a) - first.get(b));
    for (const item of sorted) item.parentElement.append(item);
  });
  verdict.addEventListener("input", show);
  search.addEventListener("input", show);
  show();
})();
