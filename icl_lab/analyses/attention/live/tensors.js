// Linear maps, norms and activations of t tokens. x (t d) is one array, token after token; weights (out in) are torch's.
// Numbers are doubles: the sums of a forward pass then differ from torch's single precision by torch's rounding alone.

function decoded(text) { // base64 of single-precision numbers -> doubles
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return Float64Array.from(new Float32Array(bytes.buffer));
}

function linear(x, t, weight, bias) { // x (t in) -> (t out)
  const wide = x.length / t, out = weight.length / wide, y = new Float64Array(t * out), whole = wide - wide % 4;
  for (let i = 0; i < t; i++) for (let o = 0, from = i * wide; o < out; o++) {
    // Four sums at once do not wait for one another.
    let a = bias ? bias[o] : 0, b = 0, c = 0, d = 0, w = o * wide, k = 0;
    for (; k < whole; k += 4) {
      a += x[from + k] * weight[w + k]; b += x[from + k + 1] * weight[w + k + 1];
      c += x[from + k + 2] * weight[w + k + 2]; d += x[from + k + 3] * weight[w + k + 3];
    }
    for (; k < wide; k++) a += x[from + k] * weight[w + k];
    y[i * out + o] = a + b + (c + d);
  }
  return y;
}

function added(x, y) {
  for (let at = 0; at < x.length; at++) x[at] += y[at];
  return x;
}

const EPSILON = 1e-5; // of torch.nn.LayerNorm, and of every RMSNorm of the models

function normed(x, wide, weight, bias) { // layer norm; without a bias the norm is by the root mean square alone
  const y = new Float64Array(x.length);
  for (let from = 0; from < x.length; from += wide) {
    let mean = 0, square = 0;
    if (bias) { for (let k = 0; k < wide; k++) mean += x[from + k]; mean /= wide; }
    for (let k = 0; k < wide; k++) square += (x[from + k] - mean) ** 2;
    const scale = 1 / Math.sqrt(square / wide + EPSILON);
    for (let k = 0; k < wide; k++) y[from + k] = (x[from + k] - mean) * scale * (weight ? weight[k] : 1) + (bias ? bias[k] : 0);
  }
  return y;
}

const sigmoid = z => z >= 0 ? 1 / (1 + Math.exp(-z)) : Math.exp(z) / (1 + Math.exp(z));
const logSigmoid = z => z >= 0 ? -Math.log1p(Math.exp(-z)) : z - Math.log1p(Math.exp(z));
const softplus = z => -logSigmoid(-z);
const silu = z => z * sigmoid(z);
const C = 2 * Math.sqrt(2 / Math.PI);
const geluNew = z => z * sigmoid(C * (z + 0.044715 * z ** 3)); // GPT-2's
// From about -5.5 down it is 0 in single precision. A rule that divides by a sum of such numbers hangs on that.
const geluExact = z => 0.5 * z * (1 + Math.fround(erf(z / Math.SQRT2)));

function erf(x) { // its Taylor series; from 3 on a continued fraction of what is missing to 1
  const size = Math.abs(x);
  if (size < 3) {
    let term = x, sum = x;
    for (let n = 1; n < 80; n++) { term *= -x * x / n; sum += term / (2 * n + 1); }
    return 2 / Math.sqrt(Math.PI) * sum;
  }
  let tail = 0;
  for (let n = 60; n > 0; n--) tail = n / 2 / (size + tail);
  return Math.sign(x) * (1 - Math.exp(-size * size) / Math.sqrt(Math.PI) / (size + tail));
}
