// What a reader has changed, what the models make of it, how it is undone, and what the address keeps of it.

const live = data.live, stored = frames[0];
const models = live.models.map(packed => engine.model(packed, live.graphs));
const roles = models[0].spec.roles;
const whole = at => roles === 1 || at % roles === 0; // whether a token is an input, of which the slider makes more

// tokens: the numbers as typed, or none for those of the page; times: what inputs are multiplied by; rules: a normalizer by run, ""
// for the model's own; off: heads as "layer.head"; calm: where weights of another prompt are used ("all", "0", "0.1"), from: its numbers.
const fresh = () => ({ tokens: null, times: 1, rules: data.runs.map(() => ""), off: [], calm: "", from: null });
let now = fresh(), latest = null;
const past = [];

const read = ({ tokens, times }) => times === 1 ? tokens ?? live.tokens
  : (tokens ?? live.tokens).map((value, at) => whole(at) ? value * times : value);
const changed = (want = now) => JSON.stringify(want) !== JSON.stringify(fresh());

const calmed = []; // the maps of the other prompt, by run, and the numbers and the rule that they were made of

function calm(run, want) {
  const numbers = want.from ?? live.tokens, name = JSON.stringify([want.rules[run], numbers]);
  if (calmed[run]?.name !== name)
    calmed[run] = { name, layers: engine.forward(models[run], numbers, { choice: want.rules[run] }).layers };
  return calmed[run].layers;
}

function sizes(numbers) { // throws what is wrong with a prompt
  const t = numbers.length / models[0].spec.reads, limits = models.map(model => model.spec.limit).filter(limit => limit !== null);
  const most = Math.min(live.most, ...limits);
  if (t > most) throw new engine.Refused(most === live.most ? `${t} tokens are more than the ${most} that the page computes.`
    : `${t} tokens do not fit into the ${most} places that the model's position code has.`);
  const large = numbers.find(value => !(Math.abs(value) <= live.largest));
  if (large !== undefined) throw new engine.Refused(`${short(large)} is too large: numbers may be up to ${short(live.largest)} in size.`);
}

function computed(want) { // the results of all runs; throws engine.Refused where there are none
  const numbers = read(want), t = numbers.length / models[0].spec.reads;
  sizes(numbers);
  if (want.calm && (want.from ?? live.tokens).length < numbers.length)
    throw new engine.Refused(`the ${want.from ? "kept" : "stored"} prompt has ${(want.from ?? live.tokens).length} tokens, so it has no attention for ${t}: take some away, or keep the attention of this prompt.`);
  return models.map((model, run) => {
    const here = want.calm && calm(run, want), cells = t * (t + 1) / 2;
    const found = engine.forward(model, numbers, {
      choice: want.rules[run],
      off: (layer, head) => want.off.includes(`${layer}.${head}`),
      patch: (layer, head) => {
        if (!here || !["all", `${layer}`, `${layer}.${head}`].includes(want.calm)) return null;
        const kept = here[layer].weights, long = kept.length / model.spec.heads;
        return kept.subarray(head * long, head * long + cells);
      },
    });
    if (!found.outputs.every(Number.isFinite)) throw new engine.Refused("with these numbers the model's answers are no finite numbers.");
    return found;
  });
}

function packed(found, part, t, first) { // of all layers and heads -> those that the page shows, from the first row on
  const size = t * (t + 1) / 2, skip = first * (first + 1) / 2, values = new Float64Array(layers.length * heads.length * (size - skip));
  let to = 0;
  for (const layer of layers) for (const head of heads) {
    values.set(found.layers[layer][part].subarray(head * size + skip, (head + 1) * size), to);
    to += size - skip;
  }
  return { values };
}

function framed(results, want) { // what attention.js shows: as the stored frame of the prompt
  const tokens = marked(read(want)), t = tokens.length, first = live.last === null ? 0 : Math.max(0, t - live.last);
  return { ...stored, first, tokens, runs: results.map(found => ({ weights: packed(found, "weights", t, first), scores: packed(found, "scores", t, first) })) };
}

function show(want, results) {
  latest = { want, results };
  frames[0] = changed(want) ? framed(results, want) : stored;
  called(data.runs.map((name, run) => want.rules[run] ? `${name} → ${want.rules[run]}` : name));
  remark = changed(want) ? " (recomputed)" : "";
  patterns = changed(want) ? recounted() : data.patterns.shares;
  tops.clear();
  weigh();
  stamp++;
  if (want.tokens || want.times !== 1) state.axis = "prompt";
}

// Puts changes in force, if they can be computed; else says why not, and everything stays as it was. A drag is one
// change: ``again`` leaves what was before it to be undone.
function change(parts, again = false) {
  const next = { ...now, ...parts };
  if (!attempt(next)) return false;
  if (!again) past.push(now);
  now = next;
  draw();
  return true;
}

function attempt(next) {
  try { show(next, computed(next)); } catch (error) {
    if (!(error instanceof engine.Refused)) throw error;
    complain(error.message);
    return false;
  }
  complain("");
  return true;
}

function undo() { if (past.length && attempt(past.at(-1))) { now = past.pop(); draw(); } }
function reset() { if (changed()) change(fresh()); }

const list = numbers => numbers.map(String).join(",");

hooks.remember.push(kept => {
  if (now.tokens) kept.set("tokens", list(now.tokens));
  if (now.times !== 1) kept.set("times", now.times);
  now.rules.forEach((text, run) => { if (text) kept.set(`rule${run}`, text); });
  if (now.off.length) kept.set("off", now.off.join());
  if (now.calm) kept.set("calm", now.calm);
  if (now.from) kept.set("from", list(now.from));
});

hooks.recall.push(kept => { // what the address says, where it can be computed
  const some = name => { const found = kept.get(name)?.split(",").map(numeral); return live.editable && found?.every(Number.isFinite) ? found : null; };
  const times = Number(kept.get("times") ?? 1), there = name => models[0].spec.layers > name.split(".")[0] && models[0].spec.heads > (name.split(".")[1] ?? 0);
  const next = {
    ...fresh(), // keeps the order, by which states are compared
    tokens: some("tokens"), times: live.editable && times > 0 && Number.isFinite(times) ? times : 1,
    rules: data.runs.map((_, run) => kept.get(`rule${run}`) ?? ""), from: some("from"),
    off: (kept.get("off") ?? "").split(",").filter(name => /^\d+\.\d+$/.test(name) && there(name)),
    calm: /^(all|\d+(\.\d+)?)$/.test(kept.get("calm") ?? "") && (kept.get("calm") === "all" || there(kept.get("calm"))) ? kept.get("calm") : "",
  };
  if (JSON.stringify(next) !== JSON.stringify(now) && attempt(next)) now = next;
});
