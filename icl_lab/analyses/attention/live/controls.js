// The controls of the live page: normalizers, heads, attention of another prompt, undo, and the mark that says what is not as stored.

function complain(text) { $("live-error").textContent = text; }

const here = () => `${layers[state.layer]}.${heads[state.head]}`;

function told() { // the changes in words
  const parts = [], old = live.tokens, numbers = now.tokens ?? old, examples = (numbers.length - old.length) / roles;
  const moved = now.tokens ? numbers.flatMap((value, at) => at < old.length && value !== old[at] ? [at] : []) : [];
  if (moved.length && moved.length < 4) parts.push(moved.map(at => marked(numbers)[at].label).join(", "));
  else if (moved.length) parts.push(`${moved.length} numbers changed`);
  if (examples) parts.push(`${Math.abs(Math.round(examples)) || "part of an"} example${Math.abs(examples) > 1 ? "s" : ""} ${examples > 0 ? "more" : "fewer"}`);
  if (now.times !== 1) parts.push(`inputs × ${short(now.times)}`);
  now.rules.forEach((text, run) => { if (text) parts.push(`${text} in the place of ${data.runs[run]}`); });
  if (now.off.length) parts.push(`${now.off.length > 1 ? "heads" : "head"} ${now.off.join(", ")} off`);
  if (now.calm) parts.push(`${patched()} ${now.calm === "all" ? "all heads" : now.calm.includes(".") ? `head ${now.calm}` : `layer ${now.calm}`}`);
  return parts.join("; ");
}

const patched = () => `attention of the ${now.from ? "kept" : "stored"} prompt in`;

function ruleRow(run) { // the normalizers that the page holds for a run
  const row = document.createElement("label"), select = document.createElement("select");
  row.textContent = two ? `normalizer of ${data.runs[run]} ` : "normalizer ";
  row.className = "live-line";
  select.append(new Option(`${data.runs[run]}, as trained`, ""), ...models[run].choices.map(choice => new Option(`${choice}, as initialised`, choice)));
  select.dataset.run = run;
  select.onchange = () => { if (!change({ rules: now.rules.with(run, select.value) })) fillRules(); };
  row.append(select);
  row.fill = () => { select.value = now.rules[run]; };
  return row;
}

function fillRules() { for (const row of $("live-rules").children) row.fill(); }

function toggled() { // the chosen head off, or on again
  const head = here();
  change({ off: now.off.includes(head) ? now.off.filter(each => each !== head) : [...now.off, head].sort() });
}

function fillControls() {
  const mark = changed();
  $("live-mark").hidden = !mark;
  $("live-what").textContent = mark ? `Recomputed in the page, not as stored: ${told()}.` : "";
  if (mark && state.axis !== "prompt") $("live-what").textContent += " The maps below are means over other prompts, as stored.";
  fillPrompt();
  $("live-times").value = Math.log10(now.times); $("live-timed").textContent = short(now.times);
  fillRules();
  $("live-off").checked = now.off.includes(here());
  $("live-off-head").textContent = `head ${here()} off`;
  $("live-calm-from").textContent = patched();
  const calmOptions = { "": "", all: "all", layer: `${layers[state.layer]}`, head: here() };
  const chosen = Object.entries(calmOptions).find(([, value]) => value === now.calm)?.[0];
  $("live-calm").querySelector("[value=other]")?.remove();
  if (chosen === undefined) $("live-calm").append(new Option(now.calm.includes(".") ? `head ${now.calm}` : `layer ${now.calm}`, "other"));
  $("live-calm").value = chosen ?? "other";
  $("live-undo").disabled = !past.length;
  $("live-stored").disabled = !now.tokens && now.times === 1;
  for (const back of document.querySelectorAll(".live-back")) back.disabled = !mark;
  for (const button of $("grid").querySelectorAll("button"))
    button.classList.toggle("off", now.off.includes(`${layers[button.dataset.layer]}.${heads[button.dataset.head]}`));
  fillAnswers();
}

function agreement() { // how far the page's own numbers of its own prompt are from the stored ones, and how long they take
  computed(fresh()); // the first time is that of a compiler
  const start = performance.now(), results = computed(fresh()), took = performance.now() - start, shares = results.map((found, run) => {
    const [mine, theirs] = [packed(found, "weights", stored.tokens.length, stored.first).values, numbers(stored, run, "weights")];
    const most = theirs.reduce((a, w) => Math.max(a, Math.abs(w)), 0) || 1;
    return mine.reduce((far, w, at) => Math.max(far, Math.abs(w - theirs[at])), 0) / most;
  });
  return { took, apart: Math.max(...shares) };
}

function unfold() {
  const { took, apart } = agreement(), count = models.reduce((sum, { size }) => sum + size, 0);
  $("live-about").textContent = `The page holds the ${models.length > 1 ? "models" : "model"} (${count.toLocaleString("en")} numbers). `
    + `Unchanged it shows the stored weights; recomputed weights agree to ${short(apart)} of the largest, in ${took < 1 ? "less than 1" : Math.round(took)} ms.`
    + (live.editable ? "" : " The tokens of this task are no single numbers: normalizers and heads can be changed, the prompt cannot.");
  // Without another prompt there is no attention of it to put in.
  for (const part of [$("live-tokens"), $("live-editing"), $("live-keep"), $("live-calm").parentElement]) part.hidden = !live.editable;
  $("live-scaled").textContent = stored.tokens[0].role;
  for (const run of models.keys()) $("live-rules").append(ruleRow(run));
}

hooks.draw.push(fillControls);
unfold();

$("live-all").onchange = event => { if (pasted(null, event.target.value)) fillPrompt(true); };
$("live-all").onblur = () => fillPrompt();
$("live-all").form?.addEventListener("submit", event => event.preventDefault());
let sliding = false; // one movement of the slider is one change
$("live-times").oninput = event => { sliding = change({ times: tidy(10 ** Number(event.target.value)) }, sliding) || sliding; };
$("live-times").onchange = () => { sliding = false; };
Object.assign($("live-more"), { onclick: more }); Object.assign($("live-fewer"), { onclick: fewer });
$("live-stored").onclick = () => { if (change({ tokens: null, times: 1 })) fillPrompt(true); };
$("live-off").onchange = toggled;
$("live-calm").onchange = event => {
  const where = { "": "", all: "all", layer: `${layers[state.layer]}`, head: here() }[event.target.value];
  if (where === undefined || !change({ calm: where })) fillControls();
};
$("live-keep").onclick = () => change({ from: [...read(now)] });
$("live-undo").onclick = undo;
for (const back of document.querySelectorAll(".live-back")) back.onclick = reset;
document.addEventListener("keydown", event => { // what is typed has an undo of its own
  const typing = document.activeElement.matches("input:not([type=checkbox]):not([type=range]), textarea");
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !typing) { event.preventDefault(); undo(); }
});
// For a console: the outputs (t c) of a run now, one after another.
window.outputs = run => Array.from((latest ?? { results: computed(now) }).results[run].outputs);
