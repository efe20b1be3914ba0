// What the models answer now, beside what they answered when the page was made, and beside truth and references, which
// are known of the page's own numbers alone.

function spoken(outputs, t, run) { // an answer in the words of the task
  const { outputs: wide } = models[run].spec, values = outputs.subarray(t * wide, (t + 1) * wide), { kind, words } = live.said;
  if (kind === "sign") { const [head, tail] = words[values[0] > 0 ? 1 : 0]; return head + short(values[0]) + tail; }
  if (kind === "class") return words[values.reduce((best, value, at) => value > values[best] ? at : best, 0)];
  return [...values.slice(0, 3)].map(short).join(", ") + (wide > 3 ? ", …" : "");
}

function asked(t) { // at which tokens of t: every input, or the last one, as in the stored prompt
  const long = stored.tokens.length, all = [...Array(t).keys()], every = live.asked.length === Math.ceil(long / roles);
  if (every && live.asked.every((at, index) => at === roles * index)) return all.filter(whole);
  return t === long ? live.asked : all.filter(whole).slice(-1);
}

function fillAnswers() {
  const here = changed(), place = $("live-answers");
  $("answers").querySelector(".wide").hidden = here;
  place.hidden = !here;
  place.replaceChildren();
  sentences(here);
  if (!here) return;
  $("whose").textContent = "Answers, recomputed in the page";
  const { want, results } = latest, same = !want.tokens && want.times === 1, references = same ? Object.entries(live.references) : [];
  const { tokens } = frames[0], truth = same ? ["truth"] : [], runs = [...models.keys()];
  const head = ["token", ...truth, ...runs.flatMap(run => [`${names[run]}: now`, `${data.runs[run]}: stored`]), ...references.map(([name]) => name)];
  const rows = asked(tokens.length).map(at => {
    const row = live.asked.indexOf(at), old = run => row < 0 || at >= stored.tokens.length ? "–" : live.answers[run][row];
    return [tokens[at].label, ...truth.map(() => live.truth[row]), ...runs.flatMap(run => [spoken(results[run].outputs, at, run), old(run)]),
      ...references.map(([, answers]) => answers[row])];
  });
  const why = same ? references.length ? "The last columns are the task's references." : "" : "Truth and references are known only of the numbers that the page was made for.";
  fill(place, why, head, rows);
  const first = 1 + truth.length;
  for (const row of place.querySelector("tbody").rows) for (const run of runs) {
    const [cell, old] = [row.cells[first + 2 * run], row.cells[first + 2 * run + 1]];
    cell.classList.toggle("changed", cell.textContent !== old.textContent);
  }
}

const counting = data.patterns.graph && engine.opened(data.patterns.graph.nodes, data.patterns.graph);

function recounted() { // the pattern of every head on the prompt that is in force, by the graph of patterns.py
  const { tokens, first } = frames[0], t = tokens.length, [most, least] = data.patterns.queries, from = Math.max(first, least - 1, t - most);
  if (!counting || from >= t) return data.runs.map(() => null);
  const typed = tokens.every(token => token.value !== null), values = typed ? tokens.map(token => token.value) : data.patterns.values;
  const within = typed ? Infinity : data.patterns.within, places = layers.flatMap((_, layer) => heads.map((_, head) => [layer, head]));
  return data.runs.map((_, run) => {
    const sums = places.map(() => data.patterns.words.map(() => 0));
    for (let i = from; i < t; i++) {
      const n = i + 1, weights = engine.make([places.length, n]);
      places.forEach(([layer, head], at) => { for (let j = 0; j < n; j++) weights.data[at * n + j] = raw(frames[0], run, "weights", layer, head, i, j); });
      const [found] = engine.run(counting, [weights, engine.make([n], Float64Array.from(values.slice(0, n))), engine.make([n], new Float64Array(n).fill(within))]);
      sums.forEach((sum, at) => sum.forEach((_, kind) => { sum[kind] += (found.data[at * sum.length + kind] || 0) / (t - from); }));
    }
    return layers.map((_, layer) => sums.slice(layer * heads.length, (layer + 1) * heads.length));
  });
}

const written = { intro: $("intro").textContent, finding: $("finding").textContent };

function sentences(here) { // on top of the page: of the prompt and the model that are in force
  $("intro").textContent = here ? `The prompt reads ${listed(frames[0].tokens)}. Rows are queries, columns the keys that they attend to.` : written.intro;
  if (!here) { $("finding").textContent = written.finding; return; }
  const { tokens, runs } = frames[0], t = tokens.length, at = asked(t).at(-1), same = !latest.want.tokens && latest.want.times === 1;
  const answers = at === undefined ? "" : `At ${tokens[at].label} ${runs.map((_, run) => `${names[run]} answers ${spoken(latest.results[run].outputs, at, run)}`).join(" and ")}`
    + `${same ? `; the truth is ${live.truth.at(-1)}` : ""}. `;
  $("finding").textContent = `${answers}The last query has its greatest weight, the mean over the heads shown, on ${runs.map((_, run) => heaviest(run, t)).join(" and on ")}.`;
}

const listed = tokens => tokens.slice(0, 60).map(({ text, label }) => text || label).join(" ") + (tokens.length > 60 ? " …" : "");

function heaviest(run, t) { // the key on which the last query has its greatest mean of |weight|
  const places = layers.flatMap((_, layer) => heads.map((_, head) => [layer, head]));
  const means = [...Array(t).keys()].map(key => places.reduce((sum, [layer, head]) => sum + Math.abs(raw(frames[0], run, "weights", layer, head, t - 1, key)), 0) / places.length);
  const key = means.indexOf(Math.max(...means));
  return `${frames[0].tokens[key].label} in ${names[run]} (${short(means[key])})`;
}
