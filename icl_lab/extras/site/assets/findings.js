"use strict";
// All claims: those of one verdict, or with some words.
(() => {
  const verdict = document.getElementById("verdict"), search = document.getElementById("search");
  if (!verdict) return;
  const items = [...document.querySelectorAll(".findings li")];

  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const item of items) {
      const told = item.querySelector(".badge").textContent, text = item.textContent.toLowerCase();
      item.hidden = (verdict.value && !told.startsWith(verdict.value)) || !words.every((word) => text.includes(word));
    }
    for (const part of document.querySelectorAll(".paper")) part.hidden = !part.querySelector("li:not([hidden])");
    const count = items.filter((item) => !item.hidden).length;
    document.getElementById("count").textContent = `${count} of ${items.length} claims`;
  }
  verdict.addEventListener("input", show);
  search.addEventListener("input", show);
  show();
})();
