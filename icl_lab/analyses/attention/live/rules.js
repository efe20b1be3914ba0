// Every rule that the page can compute, under its name. The formulas are those of icl_lab/normalizers, where their
// sources are; a test holds the names against the registry and the weights against torch.
//
//   check(o, site)   a line that says what is wrong with the options o, or nothing
//   start(o, site)   the parameters that the rule learns, at their start, by the names of the formula
//   sums             whether rows sum to 1, or a function of the options that says so; true unless told
//   carried          the start is drawn at random, so that the page carries it (by the rule's text)
//   row(z, n, c)     the weights of one row of scores z, n keys; c: o options, p parameters, h head, i query, site
//   weights(pass, c) the weights of all heads, where a row is not enough; pass: queries q, keys k (h t d), tokens x, z
//   output(pass, c, sums)  what is made of the sums of values (h t d); most rules leave them alone
// A site: heads, head_dim, train_tokens, layer (from 0), width.

const RULES = {}, WRAPPERS = {};
const rule = (name, made) => { RULES[name] = made; };
const wrapper = (name, made) => { WRAPPERS[name] = made; };

const same = (site, value) => new Float64Array(site.heads).fill(value);
const of = (p, h) => p[h % p.length]; // a number for each head, or one for the layer
const scaled = factor => (z, n, c) => softmaxRow(z, factor(n, c));

rule("softmax", { row: z => softmaxRow(z) });
rule("temperature", { check: o => o.tau > 0 ? "" : "tau must be > 0", row: scaled((n, { o }) => 1 / o.tau) });
rule("log-n", { row: scaled((n, { site }) => Math.max(1, Math.log(n) / Math.log(Math.max(site.train_tokens, 2)))) });
rule("llama4", {
  check: o => !(o.beta > 0) ? "beta must be > 0" : o.length === "train" || o.length >= 1 ? "" : "length must be >= 1, or 'train'",
  row: scaled((n, { o, site }) => {
    const before = o.variant === "ministral3" ? 1 : 0, length = o.length === "train" ? site.train_tokens : o.length;
    return 1 + o.beta * Math.log1p(Math.floor((n - before) / length));
  }),
});
rule("adaptive-temperature", {
  row(z) {
    const entropy = -total(softmaxRow(z).map(p => p * Math.log(Math.max(p, TINY))));
    const beta = [-0.037, 0.481, -2.3, 4.917, -1.791].reduce((sum, power) => sum * entropy + power, 0);
    return softmaxRow(z, Math.max(1, beta));
  },
});
rule("ssmax", {
  check: o => o.learn || !o.bias ? "" : "a bias is learned, so it needs learn=yes",
  start(o, site) {
    const most = Math.max(site.train_tokens, 2), logs = Array.from({ length: most }, (_, at) => Math.log(at + 1));
    return { s: same(site, o.s === "swap" ? most / total(logs) : o.s), ...(o.bias && { b: same(site, 0) }) };
  },
  row: scaled((n, { p, h }) => of(p.s, h) * Math.log(n) + (p.b ? of(p.b, h) : 0)),
});
rule("ssmax-free", {
  start: (o, site) => ({ p: new Float64Array(site.train_tokens).fill(1), s: same(site, 1), b: same(site, 0) }),
  row: scaled((n, { o, p, h }) => p.s[h] * (n > p.p.length && o.beyond === "fit" ? law(p.p, n) : p.p[Math.min(n, p.p.length) - 1]) + p.b[h]),
});

function law(p, n) { // the line of p against log n by least squares, at n
  const logs = p.map((_, at) => Math.log(at + 1)), middle = total(logs) / p.length;
  const spread = total(logs.map(x => (x - middle) ** 2)), slope = total(logs.map((x, at) => (x - middle) * p[at])) / Math.max(spread, TINY);
  return total(p) / p.length + slope * (Math.log(n) - middle);
}

rule("ssa", {
  check: o => !(number(o.b) > 0) ? "b must be > 0" : o.n > 1 || (o.n === 1 && (o.learn === false || o.learn === "b")) ? ""
    : o.n < 1 ? "n must be >= 1" : "n must be > 1 while it is learned",
  start(o, site) {
    const size = o.per === "head" ? site.heads : 1;
    return { n: new Float64Array(size).fill(o.n), b: new Float64Array(size).fill(number(o.b)) };
  },
  row: (z, n, { p, h }) => softmaxRow(z.map(x => of(p.n, h) * Math.sign(x) * Math.log1p(of(p.b, h) * Math.abs(x)))),
});
const number = value => value === "e" ? Math.E : value;

const LOGARITHMS = { // of a positive function the logarithm is given: its share of the sum is a softmax
  sigmoid: logSigmoid, exp: z => z,
  softplus: z => Math.log(softplus(Math.max(z, -30))) + (z - Math.max(z, -30)), // far below 0 it is e^z
};
const FUNCTIONS = {
  relu: z => Math.max(z, 0), relu2: z => Math.max(z, 0) ** 2, relu6: z => Math.min(6, Math.max(z, 0)), gelu: geluExact,
  mish: z => z * Math.tanh(softplus(z)), tanh: Math.tanh, square: z => z * z,
};
const share = (z, phi) => LOGARITHMS[phi] ? softmaxRow(z.map(LOGARITHMS[phi])) : l1(z.map(FUNCTIONS[phi]));

rule("l1", { sums: o => o.phi in LOGARITHMS, row: (z, n, { o }) => share(z, o.phi) });
rule("raw", { sums: false, row: (z, n, { o }) => o.l1 ? l1(z) : z });
rule("exp", { sums: false, row: z => z.map(x => Math.exp(Math.min(x, 20))) });
rule("sigmoid", {
  sums: o => o.l1,
  row(z, n, { o, site }) {
    const lower = { none: 0, train: Math.log(site.train_tokens), visible: Math.log(n) }[o.bias];
    return o.l1 ? softmaxRow(z.map(x => logSigmoid(x - lower))) : z.map(x => sigmoid(x - lower));
  },
});
rule("relu", {
  sums: false,
  row(z, n, { o, site }) {
    if (o.divide === "l1") return share(z, "relu");
    const divisor = { train: site.train_tokens, visible: n, root: Math.sqrt(n / 2) }[o.divide];
    return z.map(x => Math.max(x, 0) / divisor);
  },
});
rule("sink", {
  sums: false,
  start: (o, site) => ({ s: same(site, o.s) }),
  row: (z, n, { p, h }) => softmaxRow(Float64Array.of(...z, p.s[h])).subarray(0, n),
});
rule("softpick", {
  sums: false,
  row(z) {
    const most = Math.max(0, largest(z)), e = z.map(x => Math.expm1(x - most) - Math.expm1(-most));
    return ratio(e.map(x => Math.max(x, 0)), total(e.map(Math.abs)));
  },
});
rule("elastic", {
  sums: false,
  check: o => o.bias < 0 || o.bias > 65536 ? "bias must be >= 0 and at most 65,536" : o.learn || !o.bias ? "" : "a bias is learned, so it needs learn=yes",
  start: (o, site) => ({ tau: same(site, o.tau), ...(o.bias && { bias: new Float64Array(site.heads * o.bias) }) }),
  row(z, n, { o, p, h, i }) {
    const near = p.bias ? z.map((x, j) => x + (i - j < o.bias ? p.bias[h * o.bias + i - j] : 0)) : z;
    return softmaxRow(near).map(w => Math.max(0, w + p.tau[h] / n));
  },
});
rule("sparsemax", { row: z => entmaxRow(z, 2) });
rule("entmax", {
  check: o => o.alpha > 1 ? "" : o.alpha === 1 ? "alpha = 1 is softmax: choose 'softmax', or an alpha above 1" : "alpha must be > 1",
  row: (z, n, { o }) => entmaxRow(z, o.alpha),
});
rule("asentmax", {
  start: (o, site) => ({ beta: same(site, 0).map((_, h) => 0.1 + 0.9 * (h + 0.5) / site.heads), gamma: same(site, 0) }),
  row(z, n, { p, h }) { const c = 1 + p.beta[h] * Math.log(n + 1) ** p.gamma[h]; return entmaxRow(z.map(x => c * x), 1.5); },
});
rule("sa-softmax", {
  sums: false,
  row(z, n, { o }) {
    const p = softmaxRow(z), zero = o.variant === 3 ? [0] : [], low = o.variant === 0 ? 0 : Math.min(...zero, smallest(z));
    const above = z.map((x, j) => (x - low) * p[j]);
    return o.variant < 2 ? above : ratio(above, Math.max(...zero, largest(z)) - low);
  },
});
rule("inverse", { sums: false, row: z => softmaxRow(z).map(w => -w) });
rule("recentred", {
  sums: false,
  row(z, n, { o }) {
    const w = softmaxRow(z).map(x => x - (n > 3 ? 1 / n : 0));
    return o.l1 ? ratio(w, total(w.map(Math.abs)), NOISE) : w;
  },
});
rule("average", { row: (z, n) => z.fill(1 / n) });
rule("soft-avg", { check: (o, site) => parted(site, 2), row: (z, n, { h, site }) => h < site.heads / 2 ? softmaxRow(z) : z.fill(1 / n) });
rule("four-functions", {
  sums: false,
  check: (o, site) => parted(site, 4),
  row(z, n, { h, site }) { const phi = ["tanh", "", "relu", "square"][Math.floor(4 * h / site.heads)]; return phi ? share(z, phi) : z.fill(1 / n); },
});
const parted = (site, parts) => site.heads % parts ? `the number of heads must be a multiple of ${parts}` : "";

rule("scale-invariant", {
  check: o => o.tau > 0 ? "" : "tau must be > 0",
  row: (z, n, { o, i }) => softmaxRow(z.map((x, j) => { const far = 2 * Math.log1p((i - j) / o.tau); return x * Math.sqrt(1 + far) - far; })),
});
rule("stick-breaking", {
  sums: o => o.remainder === "self",
  row(z, n, { o, i }) {
    const w = new Float64Array(n);
    let left = 0; // the logarithm of what the nearer keys left
    for (let j = i - 1; j >= 0; j--) { const kept = logSigmoid(-z[j]); w[j] = Math.exp(z[j] + kept + left); left += kept; }
    w[i] = o.remainder === "self" ? Math.exp(left) : 0;
    return w;
  },
});
rule("lssa", {
  weights({ q, k, t, d, heads, ...pass }) {
    const size = x => Math.hypot(...x), cos = products(unit(q, d, size, 1e-6), unit(k, d, size, 1e-6), heads, t, d, 1);
    return eachRow({ ...pass, z: cos, t, heads }, (z, n) => softmaxRow(z.map(x => Math.log(softplus(Math.log(d) * Math.log(n) * x)))));
  },
});
rule("cosformer", {
  sums: false,
  check: o => o.horizon === "current" || o.horizon >= 1 ? "" : "horizon must be >= 1, or 'current'",
  weights({ q, k, t, d, heads, ...pass }, { o }) {
    const up = x => x.map(each => Math.max(each, 0)), far = o.horizon === "current" ? t : o.horizon;
    return eachRow({ ...pass, z: products(up(q), up(k), heads, t, d, 1), t, heads }, (z, n, h, i) => l1(z.map((x, j) => x * Math.cos(Math.PI / 2 * (i - j) / far))));
  },
});
rule("sima", {
  sums: false,
  weights({ q, k, t, d, heads }, { o }) {
    if (o.axis === "feature") {
      const size = x => total(x.map(Math.abs));
      return products(unit(q, d, size, 1e-6), unit(k, d, size, 1e-6), heads, t, d, 1);
    }
    const divided = Float64Array.from(q); // both norms belong to the row, so both divide its query
    for (let h = 0; h < heads; h++) for (let c = 0; c < d; c++) for (let i = 0, a = 0, b = 0; i < t; i++) {
      const at = (h * t + i) * d + c;
      a += Math.abs(q[at]); b += Math.abs(k[at]);
      divided[at] = q[at] / Math.max(a, 1e-6) / Math.max(b, 1e-6);
    }
    return products(divided, k, heads, t, d, 1);
  },
});
rule("selective", {
  weights(pass, { o }) {
    const { z, t } = pass, held = new Float64Array(z.length); // what the tokens before row i hold against key j
    for (let i = 1; i < t; i++) for (let j = 0; j < i; j++) {
      const against = i - 1 > j && !(o.first && j === 0) ? Math.max(0, z[above(i - 1) + j]) : 0;
      held[above(i) + j] = (i - 1 > j ? held[above(i - 1) + j] : 0) + against;
    }
    return eachRow(pass, (row, n, h, i) => softmaxRow(row.map((x, j) => x - held[above(i) + j])));
  },
});
rule("differential", {
  sums: false,
  carried: true,
  check: (o, site) => site.head_dim % 2 ? "the width of a head must be even, for two halves" : "",
  weights(pass, { p }) {
    const { q, k, t, d, heads } = pass, half = (x, start) => Float64Array.from({ length: x.length / 2 }, (_, at) => x[2 * at + start]);
    const [first, second] = [0, 1].map(start => eachRow(
      { ...pass, z: products(half(q, start), half(k, start), heads, t, d / 2, 1 / Math.sqrt(d / 2)) }, row => softmaxRow(row)));
    return first.map((w, at) => w - p.lam[0] * second[at]);
  },
  output({ d }, { o, site }, sums) { // l0, where lambda starts, hangs on the layer
    const keep = 0.6 * Math.exp(-0.3 * site.layer) + 0.2;
    return o.norm ? normed(sums, d).map(x => keep * x) : sums;
  },
});
rule("forget", {
  carried: true,
  weights(pass, { p }) {
    const { x, t, heads } = pass, gates = linear(x, t, p.w, p.b), sums = new Float64Array(gates.length);
    for (let i = 0; i < t; i++) for (let h = 0; h < heads; h++) sums[i * heads + h] = (i ? sums[(i - 1) * heads + h] : 0) + logSigmoid(gates[i * heads + h]);
    return eachRow(pass, (z, n, h, i) => softmaxRow(z.map((s, j) => s + sums[i * heads + h] - sums[j * heads + h])));
  },
});
rule("qassmax", {
  carried: true,
  check: o => o.hidden >= 1 && o.hidden <= 4096 ? "" : "hidden must be >= 1 and at most 4,096",
  weights(pass, { p }) { // G(q) for all heads at once; B(log n) for each number of keys
    const { q, k, t, d, heads } = pass, own = p.gate_bias.length, gelu = x => x.map(geluExact);
    const gate = linear(gelu(linear(q, heads * t, p.gate_in, p.gate_in_bias)), heads * t, p.gate_out, p.gate_bias);
    const logs = Float64Array.from({ length: t }, (_, i) => Math.log(i + 1));
    const base = linear(gelu(linear(logs, t, p.base_in, p.base_in_bias)), t, p.base_out, p.base_out_bias);
    const stretched = q.map((x, at) => {
      const c = own === 1 ? 0 : at % d, row = Math.floor(at / d), i = row % t, h = Math.floor(row / t);
      return x * base[(i * heads + h) * own + c] * (1 + Math.tanh(gate[row * own + c]));
    });
    return eachRow({ ...pass, z: products(stretched, k, heads, t, d, 1 / Math.sqrt(d)) }, row => softmaxRow(row));
  },
});

wrapper("reweight", {
  check: o => o.p >= 1 ? "" : "p must be >= 1",
  weights(pass, { o }, inside) {
    return eachRow({ ...pass, z: inside }, (a, n) => {
      const lost = n > 3 ? 1 : 0, peak = n * largest(a) - lost;
      if (peak < NOISE) return a; // uniform up to rounding
      const y = a.map(w => Math.max(0, (n * w - lost) / peak) ** o.p);
      return ratio(y, total(y));
    });
  },
});
wrapper("gated", {
  carried: true,
  output({ x, t, d, heads }, { o, p }, sums) {
    const gates = linear(x, t, p.w), per = gates.length / t / heads, phi = o.phi === "sigmoid" ? sigmoid : softplus;
    return sums.map((s, at) => s * phi(gates[(Math.floor(at / d) % t * heads + Math.floor(at / d / t)) * per + (per === 1 ? 0 : at % d)]));
  },
});
