// Runs graphs of torch.export on plain arrays: the core ATen operators that occur, no formula of a model or a normalizer.
// A tensor is { shape, data }, row-major; all numbers are doubles, truth values 0 and 1.

const size = shape => shape.reduce((a, b) => a * b, 1);
const make = (shape, data) => ({ shape, data: data ?? new Float64Array(size(shape)) });
const isTensor = x => x !== null && typeof x === "object" && x.data !== undefined;
const at = (dim, rank) => dim < 0 ? dim + rank : dim;
const same = (a, b) => a.length === b.length && a.every((n, i) => n === b[i]);

function strides(shape) {
  const out = Array(shape.length);
  for (let d = shape.length - 1, step = 1; d >= 0; d--) { out[d] = step; step *= shape[d]; }
  return out;
}

// ---- Views: everything that moves numbers without changing them is one walk by strides.

function walk(shape, steps, visit, start = 0) { // calls visit(n, offset) for every cell of shape, in order
  const rank = shape.length, count = size(shape), place = Array(rank).fill(0);
  for (let n = 0, offset = start; n < count; n++) {
    visit(n, offset);
    for (let d = rank - 1; d >= 0; d--) {
      offset += steps[d];
      if (++place[d] < shape[d]) break;
      offset -= steps[d] * shape[d]; place[d] = 0;
    }
  }
}

function strided(x, shape, steps, start = 0) { // a copy of x, read by strides; the innermost dimension is a plain loop
  const out = make(shape), n = shape.at(-1) ?? 1, step = steps.at(-1) ?? 1;
  walk(shape.slice(0, -1), steps.slice(0, -1), (row, from) => {
    for (let j = 0, to = row * n; j < n; j++, from += step) out.data[to + j] = x.data[from];
  }, start);
  return out;
}

function broadcast(shapes) {
  const rank = Math.max(...shapes.map(shape => shape.length)), out = Array(rank).fill(1);
  for (const shape of shapes) shape.forEach((n, d) => { if (n !== 1) out[rank - shape.length + d] = n; });
  return out;
}

function expand(x, shape) {
  const lead = shape.length - x.shape.length, own = strides(x.shape), whole = shape.map((n, d) => n === -1 ? x.shape[d - lead] : n);
  return same(whole, x.shape) ? x : strided(x, whole, whole.map((_, d) => d < lead || x.shape[d - lead] === 1 ? 0 : own[d - lead]));
}

function permute(x, order) {
  const dims = order.map(d => at(d, x.shape.length)), own = strides(x.shape);
  return strided(x, dims.map(d => x.shape[d]), dims.map(d => own[d]));
}

function reshape(x, shape) {
  const known = shape.reduce((a, n) => n === -1 ? a : a * n, 1);
  return make(shape.map(n => n === -1 ? x.data.length / known : n), x.data);
}

function unsqueeze(x, dim) {
  const shape = [...x.shape];
  shape.splice(at(dim, shape.length + 1), 0, 1);
  return make(shape, x.data);
}

function squeeze(x, dims) {
  const chosen = dims == null ? null : [dims].flat().map(d => at(d, x.shape.length));
  return make(x.shape.filter((n, d) => n !== 1 || (chosen && !chosen.includes(d))), x.data);
}

function slice(x, dim = 0, start = 0, end = null, step = 1) {
  const d = at(dim, x.shape.length), n = x.shape[d], own = strides(x.shape);
  const clip = i => Math.max(0, Math.min(n, i < 0 ? i + n : i)), from = clip(start ?? 0), to = clip(end ?? n);
  const shape = x.shape.map((m, e) => e === d ? Math.max(0, Math.ceil((to - from) / step)) : m);
  return strided(x, shape, own.map((s, e) => e === d ? s * step : s), from * own[d]);
}

function select(x, dim, i) {
  const d = at(dim, x.shape.length), y = slice(x, d, i, i === -1 ? null : i + 1);
  return make(y.shape.filter((_, e) => e !== d), y.data);
}

function flip(x, dims) {
  const own = strides(x.shape), chosen = dims.map(d => at(d, x.shape.length));
  return strided(x, x.shape, own.map((s, d) => chosen.includes(d) ? -s : s), chosen.reduce((a, d) => a + (x.shape[d] - 1) * own[d], 0));
}

function diagonal(x, offset = 0, first = 0, second = 1) {
  if (offset) throw new Error("only the main diagonal");
  const rank = x.shape.length, [p, q] = [at(first, rank), at(second, rank)], own = strides(x.shape);
  const rest = [...x.shape.keys()].filter(d => d !== p && d !== q);
  return strided(x, [...rest.map(d => x.shape[d]), Math.min(x.shape[p], x.shape[q])], [...rest.map(d => own[d]), own[p] + own[q]]);
}

function cat(parts, dim = 0) {
  const d = at(dim, parts[0].shape.length), [outer, , inner] = around(parts[0], d), n = parts.reduce((a, part) => a + part.shape[d], 0);
  const out = make(parts[0].shape.map((m, e) => e === d ? n : m));
  let to = 0;
  for (const part of parts) {
    const wide = part.shape[d] * inner;
    for (let o = 0; o < outer; o++) out.data.set(part.data.subarray(o * wide, (o + 1) * wide), o * n * inner + to);
    to += wide;
  }
  return out;
}

function pad(x, amounts, value = 0) { // amounts from the last dimension on, two each
  if (amounts.some(amount => amount < 0)) throw new Error("a pad below 0");
  const rank = x.shape.length, shape = [...x.shape], before = Array(rank).fill(0);
  for (let i = 0; i < amounts.length / 2; i++) {
    before[rank - 1 - i] = amounts[2 * i];
    shape[rank - 1 - i] += amounts[2 * i] + amounts[2 * i + 1];
  }
  const out = full(shape, value), steps = strides(shape);
  walk(x.shape, steps, (n, to) => { out.data[to] = x.data[n]; }, before.reduce((sum, amount, d) => sum + amount * steps[d], 0));
  return out;
}

function index(x, by) { // by: tensors of whole numbers side by side, null where a dimension is taken whole
  const first = by.findIndex(part => part !== null), chosen = by.filter(part => part !== null), last = first + chosen.length;
  const shape = broadcast(chosen.map(part => part.shape)), wide = chosen.map(part => expand(part, shape)), own = strides(x.shape);
  const outer = size(x.shape.slice(0, first)), inner = size(x.shape.slice(last)), n = size(shape), block = size(x.shape.slice(first));
  const out = make([...x.shape.slice(0, first), ...shape, ...x.shape.slice(last)]);
  for (let o = 0; o < outer; o++) for (let i = 0; i < n; i++) {
    const place = (part, d) => (part.data[i] < 0 ? part.data[i] + x.shape[first + d] : part.data[i]) * own[first + d];
    const from = wide.reduce((sum, part, d) => sum + place(part, d), o * block);
    out.data.set(x.data.subarray(from, from + inner), (o * n + i) * inner);
  }
  return out;
}

// ---- Arithmetic, element by element and along a dimension.

function each(f, x) {
  const data = new Float64Array(x.data.length);
  for (let i = 0; i < data.length; i++) data[i] = f(x.data[i]);
  return make(x.shape, data);
}

function pair(f, a, b) { // tensors or numbers; both numbers are sizes of tensors
  if (!isTensor(a)) return isTensor(b) ? each(y => f(a, y), b) : f(a, b);
  if (!isTensor(b)) return each(x => f(x, b), a);
  const shape = broadcast([a.shape, b.shape]), x = expand(a, shape).data, y = expand(b, shape).data, out = make(shape);
  for (let i = 0; i < x.length; i++) out.data[i] = f(x[i], y[i]);
  return out;
}

function where(chosen, a, b) {
  const parts = [chosen, a, b].map(x => isTensor(x) ? x : full([], x)), shape = broadcast(parts.map(x => x.shape));
  const [c, x, y] = parts.map(part => expand(part, shape).data), out = make(shape);
  for (let i = 0; i < c.length; i++) out.data[i] = c[i] ? x[i] : y[i];
  return out;
}

function clamp(x, low, high) {
  const raised = low == null ? x : pair((a, b) => a < b ? b : a, x, low);
  return high == null ? raised : pair((a, b) => a > b ? b : a, raised, high);
}

function around(x, dim) { // [outer, n, inner]: what lies before, along and behind a dimension
  return [size(x.shape.slice(0, dim)), x.shape[dim], size(x.shape.slice(dim + 1))];
}

function fold(f, start, x, dims, keep = false, end = y => y) { // reduces over dims (all if none), one after another
  const listed = dims == null || dims.length === 0 ? [...x.shape.keys()] : [dims].flat().map(d => at(d, Math.max(1, x.shape.length)));
  const chosen = x.shape.length ? listed.sort((a, b) => b - a) : [], count = chosen.reduce((n, d) => n * x.shape[d], 1);
  let out = x.shape.length ? x : each(value => f(start, value), x);
  for (const d of chosen) {
    const [outer, n, inner] = around(out, d), data = new Float64Array(outer * inner).fill(start);
    for (let o = 0; o < outer; o++) for (let i = 0; i < n; i++) for (let k = 0; k < inner; k++)
      data[o * inner + k] = f(data[o * inner + k], out.data[(o * n + i) * inner + k]);
    out = make(out.shape.map((m, e) => e === d ? 1 : m), data);
  }
  return make(keep ? out.shape : out.shape.filter((_, d) => !chosen.includes(d)), out.data.map(y => end(y, count)));
}

function cumsum(x, dim) {
  const [outer, n, inner] = around(x, at(dim, x.shape.length)), data = Float64Array.from(x.data);
  for (let o = 0; o < outer; o++) for (let i = 1; i < n; i++) for (let k = 0; k < inner; k++)
    data[(o * n + i) * inner + k] += data[(o * n + i - 1) * inner + k];
  return make(x.shape, data);
}

function largest(x, k) { // the k largest along the last dimension, without their places
  const n = x.shape.at(-1), rows = x.data.length / n, out = make([...x.shape.slice(0, -1), k]);
  for (let r = 0; r < rows; r++) out.data.set(x.data.slice(r * n, (r + 1) * n).sort((a, b) => b - a).slice(0, k), r * k);
  return out;
}

function softmax(x, dim) {
  const e = pair((a, top) => Math.exp(a - top), x, fold(Math.max, -Infinity, x, [dim], true));
  return pair((a, b) => a / b, e, fold(add, 0, e, [dim], true));
}

function product(a, b, bias) { // (.. m k) (.. k n) -> (.. m n)
  const [m, k] = a.shape.slice(-2), n = b.shape.at(-1), lots = size(a.shape.slice(0, -2)), out = make([...a.shape.slice(0, -1), n]);
  for (let l = 0; l < lots; l++) for (let i = 0; i < m; i++) {
    const to = (l * m + i) * n;
    if (bias) out.data.set(bias.data, to);
    for (let c = 0; c < k; c++) {
      const x = a.data[(l * m + i) * k + c], from = (l * k + c) * n;
      if (x !== 0) for (let j = 0; j < n; j++) out.data[to + j] += x * b.data[from + j];
    }
  }
  return out;
}

function norm(x, wide, weight, bias, eps, centred) { // layer norm, or by the root mean square alone
  const n = size(wide), out = make(x.shape);
  for (let o = 0; o < x.data.length; o += n) {
    let mean = 0, square = 0;
    if (centred) for (let i = 0; i < n; i++) mean += x.data[o + i] / n;
    for (let i = 0; i < n; i++) square += (x.data[o + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(square / n + eps);
    for (let i = 0; i < n; i++) out.data[o + i] = (x.data[o + i] - mean) * scale * (weight ? weight.data[i] : 1) + (bias ? bias.data[i] : 0);
  }
  return out;
}

function erf(x) { // its Taylor series; from 3 on a continued fraction of what is missing to 1
  const far = Math.abs(x);
  let term = x, sum = x, tail = 0;
  if (far >= 3) {
    for (let n = 60; n > 0; n--) tail = n / 2 / (far + tail);
    return Math.sign(x) * (1 - Math.exp(-far * far) / Math.sqrt(Math.PI) / (far + tail));
  }
  for (let n = 1; n < 80; n++) { term *= -x * x / n; sum += term / (2 * n + 1); }
  return 2 / Math.sqrt(Math.PI) * sum;
}

const C = Math.sqrt(2 / Math.PI);
const gelu = (x, { approximate } = {}) => each(approximate === "tanh" ? v => 0.5 * v * (1 + Math.tanh(C * (v + 0.044715 * v ** 3)))
  : v => 0.5 * v * (1 + Math.fround(erf(v / Math.SQRT2))), x); // from about -5.5 down it is 0 in single precision

function arange(...given) {
  const [start, end, step = 1] = given.length === 1 ? [0, ...given] : given, n = Math.max(0, Math.ceil((end - start) / step));
  return make([n], Float64Array.from({ length: n }, (_, i) => start + i * step));
}

function split(x, sizes, dim = 0) {
  let from = 0;
  return sizes.map(n => slice(x, dim, from, from += n));
}

const full = (shape, value) => make(shape, new Float64Array(size(shape)).fill(value));
const add = (a, b) => a + b, sub = (a, b) => a - b, mul = (a, b) => a * b, divide = (a, b) => a / b;
const quotient = mode => ({ floor: (a, b) => Math.floor(a / b), trunc: (a, b) => Math.trunc(a / b) })[mode] ?? divide;
const power = (a, b) => b === 0.5 ? Math.sqrt(a) : a ** b;
const unary = f => x => each(f, x), binary = f => (a, b) => pair(f, a, b), test = f => (a, b) => pair((x, y) => +f(x, y), a, b);
const scaled = f => (a, b, { alpha = 1 } = {}) => pair((x, y) => f(x, alpha * y), a, b);
const along = (f, start, end) => (x, dims, keep) => fold(f, start, x, dims, keep, end);

const OPERATORS = {
  "aten.abs": unary(Math.abs), "aten.cos": unary(Math.cos), "aten.erf": unary(erf), "aten.exp": unary(Math.exp), "aten.expm1": unary(Math.expm1),
  "aten.floor": unary(Math.floor), "aten.log": unary(Math.log), "aten.log1p": unary(Math.log1p), "aten.log2": unary(Math.log2),
  "aten.neg": unary(x => -x), "aten.reciprocal": unary(x => 1 / x), "aten.relu": unary(x => x < 0 ? 0 : x),
  "aten.rsqrt": unary(x => 1 / Math.sqrt(x)), "aten.sigmoid": unary(x => 1 / (1 + Math.exp(-x))), "aten.sign": unary(Math.sign),
  "aten.sin": unary(Math.sin), "aten.sqrt": unary(Math.sqrt), "aten.tanh": unary(Math.tanh), "aten.gelu": gelu,
  "aten.bitwise_not": unary(x => +!x), "aten.logical_not": unary(x => +!x), "aten.isnan": unary(x => +(x !== x)),

  "aten.add": scaled(add), "aten.sub": scaled(sub), "aten.rsub": scaled((a, b) => b - a), "aten.mul": binary(mul), "aten.pow": binary(power),
  "aten.div": (a, b, { rounding_mode } = {}) => pair(quotient(rounding_mode), a, b), "aten.maximum": binary(Math.max), "aten.minimum": binary(Math.min),
  "aten.copysign": binary((a, b) => b < 0 || Object.is(b, -0) ? -Math.abs(a) : Math.abs(a)), "aten.addcmul": (x, a, b, { value = 1 } = {}) => pair(add, x, pair((p, q) => value * p * q, a, b)),
  "aten.remainder": binary((a, b) => a - b * Math.floor(a / b)),
  "aten.eq": test((a, b) => a === b), "aten.ne": test((a, b) => a !== b), "aten.lt": test((a, b) => a < b), "aten.le": test((a, b) => a <= b),
  "aten.gt": test((a, b) => a > b), "aten.ge": test((a, b) => a >= b), "aten.logical_and": test((a, b) => a && b), "aten.logical_or": test((a, b) => a || b),
  "aten.bitwise_and": binary((a, b) => a & b), "aten.bitwise_or": binary((a, b) => a | b),
  "aten.where": where, "aten.clamp": clamp, "aten.clamp_min": clamp, "aten.hardtanh": (x, low = -1, high = 1) => clamp(x, low, high), "aten.clamp_max": (x, high) => clamp(x, null, high),

  "aten.sum": along(add, 0), "aten.mean": along(add, 0, divide), "aten.prod": along(mul, 1), "aten.amax": along(Math.max, -Infinity), "aten.amin": along(Math.min, Infinity),
  "aten.any": along((a, b) => +(a || b), 0), "aten.max": (x, dim, keep) => [fold(Math.max, -Infinity, x, [dim], keep)], "aten.topk": (x, k) => [largest(x, k)], // without their places
  "aten.linalg_vector_norm": (x, p = 2, dims, keep) => fold(add, 0, each(v => Math.abs(v) ** p, x), dims, keep, y => y ** (1 / p)),
  "aten.cumsum": cumsum, "aten._softmax": softmax, "aten._log_softmax": (x, dim) => each(Math.log, softmax(x, dim)),
  "aten.mm": (a, b) => product(a, b), "aten.bmm": (a, b) => product(a, b), "aten.addmm": (bias, a, b) => product(a, b, bias),
  "aten.native_layer_norm": (x, wide, weight, bias, eps) => [norm(x, wide, weight, bias, eps, true)],
  "aten._fused_rms_norm": (x, wide, weight, eps) => [norm(x, wide, weight, null, eps, false)],

  "aten.full": full, "aten.full_like": (x, value) => full(x.shape, value), "aten.new_full": (_, shape, value) => full(shape, value), "aten.scalar_tensor": value => full([], value),
  "aten.zeros": shape => full(shape, 0), "aten.ones": shape => full(shape, 1), "aten.zeros_like": x => full(x.shape, 0), "aten.ones_like": x => full(x.shape, 1), "aten.arange": arange,
  "aten.view": reshape, "aten.reshape": reshape, "aten._unsafe_view": reshape, "aten.permute": permute, "aten.expand": expand, "aten.unsqueeze": unsqueeze, "aten.squeeze": squeeze,
  "aten.slice": slice, "aten.select": select, "aten.flip": flip, "aten.diagonal": diagonal, "aten.cat": cat, "aten.constant_pad_nd": pad, "aten.split_with_sizes": split,
  "aten.index": index, "aten.embedding": (table, rows) => index(table, [rows]), "aten.sym_size": (x, dim) => x.shape[at(dim, x.shape.length)],
  "aten.clone": x => x, "aten.alias": x => x, "aten.detach": x => x, "aten._to_copy": (x, { dtype } = {}) => dtype?.startsWith("torch.int") ? each(Math.trunc, x) : dtype === "torch.bool" ? each(v => +(v !== 0), x) : x,

  "py.add": add, "py.sub": sub, "py.mul": mul, "py.truediv": divide, "py.floordiv": quotient("floor"), "py.pow": power, "py.getitem": (x, i) => x[i],
  "py.sym_max": Math.max, "py.sym_min": Math.min, "py.sym_float": x => x, "py._sym_sqrt": Math.sqrt,
};

// ---- Graphs.

const NUMBERS = { inf: Infinity, "-inf": -Infinity, nan: NaN };

function decoded(text) { // base64 of single-precision numbers -> doubles
  return Float64Array.from(new Float32Array(Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer));
}

function opened(nodes, { shapes, numbers }) { // a graph with its tensors; what hangs on these alone is computed once
  const all = decoded(numbers), constant = [], moves = x => x !== null && typeof x === "object" && (Array.isArray(x) ? x.some(moves) : "n" in x && !constant[x.n]);
  let from = 0;
  nodes.forEach(([name, given], n) => { constant[n] = name === "held" || (name.startsWith("aten") && !moves(given)); });
  return { nodes, constant, kept: [], held: shapes.map(shape => make(shape, all.subarray(from, from += size(shape)))) };
}

function run(graph, inputs, holes = {}) { // tensors in, tensors out; ``holes`` are further operators by name
  const made = [];
  const read = x => x === null || typeof x !== "object" ? x : Array.isArray(x) ? x.map(read) : "n" in x ? made[x.n] : NUMBERS[x.f];
  const words = named => Object.fromEntries(Object.entries(named).map(([key, value]) => [key, read(value)]));
  for (const [name, given, named] of graph.nodes) {
    const n = made.length;
    if (name === "out") return given.map(read);
    if (name === "held") made.push(graph.held[given]);
    else if (name === "given") made.push(inputs[given]);
    else {
      made.push(graph.kept[n] ?? (holes[name] ?? OPERATORS[name])(...read(given), ...(named ? [words(named)] : [])));
      if (graph.constant[n]) graph.kept[n] = made[n];
    }
  }
}
