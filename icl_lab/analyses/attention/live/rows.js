// What the rules are made of: a row is the scores of one query against the n keys that it sees.

const MASS = 1e-30; // a row that adds up to less has no weights
const NOISE = 100 * 2 ** -23; // how far a weight times n may be from 1 by the rounding of single precision alone
const TINY = 2 ** -126; // the least normal number of single precision

const total = row => row.reduce((sum, w) => sum + w, 0);
const largest = row => row.reduce((a, b) => Math.max(a, b));
const smallest = row => row.reduce((a, b) => Math.min(a, b));

function softmaxRow(z, factor = 1) {
  let most = -Infinity, sum = 0;
  for (const each of z) most = Math.max(most, factor * each); // of which NaN makes NaN
  const w = new Float64Array(z.length);
  for (let j = 0; j < w.length; j++) sum += w[j] = Math.exp(factor * z[j] - most);
  for (let j = 0; j < w.length; j++) w[j] /= sum;
  return w;
}

const ratio = (row, sum, least = MASS) => sum < least ? row.fill(0) : row.map(w => w / sum);
const l1 = row => ratio(row, total(row.map(Math.abs)));

const power = (r, p) => p === 0 ? Number(r > 0) : p === 1 ? r : p === 2 ? r * r : r ** p;

function entmaxRow(z, alpha) { // relu((alpha - 1) z - tau)^p, its threshold tau such that the weights sum to 1
  const most = largest(z), p = 1 / (alpha - 1), x = z.map(each => (alpha - 1) * (each - most));
  const sum = (tau, p) => { let all = 0; for (const each of x) if (each > tau) all += power(each - tau, p); return all; };
  let tau = -1;
  if (alpha <= 2) { // the sum is convex in tau: from the left no step of Newton's method goes beyond the root
    for (let round = 0, step = 1; round < 100 && step > 1e-14; round++) tau += step = Math.max(0, (sum(tau, p) - 1) / (p * sum(tau, p - 1)));
  } else {
    for (let round = 0, width = 0.5; round < 60; round++, width /= 2) if (sum(tau + width, p) >= 1) tau += width;
  }
  const w = x.map(each => each > tau ? power(each - tau, p) : 0);
  return ratio(w, total(w));
}

function eachRow(pass, make) { // make(z, n, head, i) -> the weights of a row; all heads -> packed as the scores are
  const { z, t, heads } = pass, weights = new Float64Array(z.length);
  for (let head = 0, from = 0; head < heads; head++) for (let i = 0; i < t; from += ++i)
    weights.set(make(z.slice(from, from + i + 1), i + 1, head, i), from);
  return weights;
}

function unit(x, d, size, least) { // every vector of d numbers divided by its size
  const out = new Float64Array(x.length);
  for (let from = 0; from < x.length; from += d) {
    const norm = Math.max(least, size(x.subarray(from, from + d)));
    for (let c = 0; c < d; c++) out[from + c] = x[from + c] / norm;
  }
  return out;
}
