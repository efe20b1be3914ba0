// Faults of a page for those who do not see or point, each as a line; nothing where there is none.
() => {
  const all = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());
  const words = (e) => (e.textContent || "").trim().slice(0, 40), html = (e) => e.outerHTML.slice(0, 90);
  const label = (e) => e.getAttribute("aria-label")
    || (e.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent || "").join(" ");
  const twice = (names) => names.filter((name, i) => names.indexOf(name) !== i);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  const marks = all("main, nav, header.top, footer, section[aria-labelledby], [role=region], [role=search]");
  const heads = all("h1, h2, h3, h4").map((e) => Number(e.tagName[1]));
  return [
    ...(all("h1").length === 1 ? [] : [`${all("h1").length} h1`]),
    ...heads.filter((level, i) => i && level > heads[i - 1] + 1).map((level) => `h${level} skips a level`),
    ...twice(ids).map((id) => `id ${id} twice`),
    ...twice(marks.map((e) => `${e.getAttribute("role") || e.tagName} ${label(e)}`)).map((name) => `landmark ${name} twice`),
    ...all("[role=region]").filter((e) => !label(e).trim()).map((e) => `region without a name: ${html(e)}`),
    ...all("img").filter((e) => !e.alt.trim()).map((e) => `no alt: ${html(e)}`),
    ...all("input, select").filter((e) => !label(e).trim() && !words(e.closest("label") ?? {})).map((e) => `no label: ${html(e)}`),
    ...all("th").filter((e) => !e.scope || !words(e)).map((e) => `head without scope or words: ${html(e)}`),
    ...all("a, button, summary").filter((e) => !words(e) && !label(e) && !e.querySelector("img[alt]")).map((e) => `no words: ${html(e)}`),
    ...all("[role=gridcell]").filter((e) => !e.ariaLabel.startsWith(e.textContent)).map((e) => `not what is seen: ${html(e)}`),
    ...all(".wide, .card, pre").filter((e) => e.scrollWidth > e.clientWidth && e.tabIndex !== 0 && !e.querySelector("a, button, [tabindex='0']"))
      .map((e) => `scrolls, not by keyboard: ${html(e)}`),
  ];
}
