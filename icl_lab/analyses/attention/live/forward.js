// The forward pass of one prompt, as model/gpt2.py and model/blocks.py have it.
// Axis letters: h heads, t tokens, d head width, w numbers in a token. Of maps only what is seen is held, row after row.

const above = i => i * (i + 1) / 2; // visible cells above row i of one head

function opened(packed) { // the model as the page holds it -> with its numbers as arrays, and a rule for each layer
  const all = decoded(packed.bytes), tensors = {};
  let from = 0;
  for (const [name, size] of packed.tensors) { tensors[name] = all.subarray(from, from + size); from += size; }
  const model = { ...packed, tensors };
  model.own = ruleOf(packed.rule, model, packed.parameters);
  return model;
}

function byHeads(qkv, part, t, heads, wide) { // (t 3 h d) -> the queries, keys or values (h t d)
  const d = wide / heads, out = new Float64Array(t * wide);
  for (let h = 0; h < heads; h++) for (let i = 0; i < t; i++) for (let c = 0; c < d; c++)
    out[(h * t + i) * d + c] = qkv[i * 3 * wide + part * wide + h * d + c];
  return out;
}

function products(q, k, heads, t, d, scale) { // q.k times a scale for each visible pair, by head and row
  const z = new Float64Array(heads * above(t));
  for (let h = 0, to = 0; h < heads; h++) for (let i = 0; i < t; i++) for (let j = 0; j <= i; j++, to++) {
    let sum = 0;
    for (let c = 0, a = (h * t + i) * d, b = (h * t + j) * d; c < d; c++) sum += q[a + c] * k[b + c];
    z[to] = sum * scale;
  }
  return z;
}

function mixed(weights, v, heads, t, d) { // weights and values (h t d) -> the sums of values (h t d)
  const o = new Float64Array(v.length);
  for (let h = 0, from = 0; h < heads; h++) for (let i = 0; i < t; i++) for (let j = 0; j <= i; j++, from++) {
    const w = weights[from];
    // What is not weighed is not read: a value that is no number must not spoil it, as it does not in a sum of zeros.
    if (w !== 0) for (let c = 0, a = (h * t + i) * d, b = (h * t + j) * d; c < d; c++) o[a + c] += w * v[b + c];
  }
  return o;
}

function joined(o, heads, t, d) { // (h t d) -> (t h*d)
  const out = new Float64Array(o.length);
  for (let h = 0; h < heads; h++) for (let i = 0; i < t; i++) for (let c = 0; c < d; c++)
    out[(i * heads + h) * d + c] = o[(h * t + i) * d + c];
  return out;
}

// changes: rule (one of ruleOf), off(layer, head) whether a head adds nothing, patch(layer, head) the weights that are
// used in the place of a head's own (as analyses/saturation/patching.py does), or nothing.
function forward(model, tokens, changes = {}) {
  const { spec, tensors } = model, { width, heads } = spec, t = tokens.length / spec.reads, d = width / heads;
  const rule = changes.rule ?? model.own, of = name => tensors[name], code = POSITIONS[spec.positions.name];
  const norm = (x, name, wide = width) => of(`${name}.weight`) ? normed(x, wide, of(`${name}.weight`), of(`${name}.bias`)) : x;
  const apply = (x, name) => linear(x, t, of(`${name}.weight`), of(`${name}.bias`));
  let x = spec.vocabulary ? embedded(tokens, of("read_in.weight"), width) : apply(tokens, "read_in");
  if (of("roles")) for (let at = 0; at < x.length; at++) x[at] += of("roles")[at % of("roles").length];
  code.place?.(x, t, model, spec.positions.options);
  x = norm(x, "norm_in");
  const layers = [];
  for (let layer = 0; layer < spec.layers; layer++) {
    const block = `blocks.${layer}`, read = norm(x, `${block}.before_attention`);
    const qkv = apply(read, `${block}.attention.qkv`);
    let [q, k, v] = [0, 1, 2].map(part => byHeads(qkv, part, t, heads, width));
    q = norm(q, `${block}.attention.norm_q`, d); k = norm(k, `${block}.attention.norm_k`, d);
    for (const each of [q, k]) code.turn?.(each, t, d, model, spec.positions.options);
    const pass = { q, k, x: read, t, d, heads, layer, width, train: spec.train_tokens, z: products(q, k, heads, t, d, 1 / Math.sqrt(d)) };
    const weights = rule.weights(pass), cells = above(t);
    for (let h = 0; h < heads; h++) {
      const other = changes.patch?.(layer, h);
      if (other) weights.set(other.subarray(0, cells), h * cells);
    }
    const o = rule.output(pass, mixed(weights, v, heads, t, d));
    for (let h = 0; h < heads; h++) if (changes.off?.(layer, h)) o.fill(0, h * t * d, (h + 1) * t * d);
    x = added(apply(joined(o, heads, t, d), `${block}.attention.project`), x);
    if (of(`${block}.mlp.widen.weight`)) x = added(mlp(norm(x, `${block}.before_mlp`), `${block}.mlp`, apply, of), x);
    layers.push({ weights, scores: pass.z });
  }
  return { layers, outputs: apply(norm(x, "norm"), "read_out") };
}

function mlp(x, name, apply, of) {
  const inner = apply(x, `${name}.widen`);
  if (of(`${name}.gate.weight`)) {
    const gate = apply(x, `${name}.gate`);
    for (let at = 0; at < inner.length; at++) inner[at] *= silu(gate[at]);
  } else for (let at = 0; at < inner.length; at++) inner[at] = geluNew(inner[at]);
  return apply(inner, `${name}.project`);
}

function embedded(tokens, table, wide) { // whole numbers -> their rows of the table
  const x = new Float64Array(tokens.length * wide);
  tokens.forEach((token, i) => x.set(table.subarray(token * wide, (token + 1) * wide), i * wide));
  return x;
}
