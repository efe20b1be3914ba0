"use strict";
// Means over training seeds with intervals by Student's t, and effects paired over seeds.
(() => {
  // 97.5 % quantiles of Student's t with 1 to 30 degrees of freedom.
  const T = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.306, 2.2622, 2.2281, 2.201, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.093, 2.086, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423];
  // Beyond: the first terms of the expansion in 1 / degrees of freedom (Abramowitz & Stegun 26.7.5), z the normal's.
  const z = 1.959964;
  const far = (df) => z + (z ** 3 + z) / (4 * df) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * df ** 2);
  const quantile = (df) => (df <= T.length ? T[df - 1] : far(df));

  /** The mean of some numbers with its 95 % interval; of one number without. */
  function interval(values) {
    const n = values.length, mean = values.reduce((a, b) => a + b, 0) / n;
    if (n < 2) return { mean, low: null, high: null, n };
    const sd = Math.sqrt(values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (n - 1));
    const half = quantile(n - 1) * sd / Math.sqrt(n);
    return { mean, low: mean - half, high: mean + half, n };
  }

  /** The same of logarithms, given back as numbers: the geometric mean. */
  function geometric(values) {
    const found = interval(values.map(Math.log));
    return { mean: Math.exp(found.mean), low: found.low === null ? null : Math.exp(found.low), high: found.high === null ? null : Math.exp(found.high), n: found.n };
  }

  /** The mean over seeds: geometric where errors span decades and are above 0. Values that have no end stay so. */
  function mean(values, log) {
    const known = values.filter((v) => v !== null && v !== undefined);
    if (!known.length || known.length < values.length) return { mean: null, low: null, high: null, n: known.length };
    if (known.some((v) => !Number.isFinite(v))) return { mean: Infinity, low: null, high: null, n: known.length };
    return log && known.every((v) => v > 0) ? geometric(known) : interval(known);
  }

  /** The effect of one group on another: Maps of seed -> value. A ratio where ``log``, else a difference. */
  function effect(ours, theirs, log) {
    const usable = (v) => v !== null && v !== undefined && Number.isFinite(v) && (!log || v > 0);
    const seeds = [...ours.keys()].filter((seed) => theirs.has(seed)), paired = seeds.length > 0;
    const of = log ? Math.log : (v) => v, back = log ? Math.exp : (v) => v;
    if (paired) {
      if (!seeds.every((seed) => usable(ours.get(seed)) && usable(theirs.get(seed)))) return null;
      const found = interval(seeds.map((seed) => of(ours.get(seed)) - of(theirs.get(seed))));
      return finish(found, seeds.length);
    }
    const [a, b] = [[...ours.values()], [...theirs.values()]];
    if (!a.length || !b.length || ![...a, ...b].every(usable)) return null;
    return finish({ mean: interval(a.map(of)).mean - interval(b.map(of)).mean, low: null, high: null }, 0);

    function finish(found, n) {
      const clear = found.low !== null && (found.low > 0 || found.high < 0);
      return { value: back(found.mean), low: found.low === null ? null : back(found.low), high: found.high === null ? null : back(found.high), clear, n };
    }
  }

  Object.assign(site, { mean, effect, quantile });
})();
