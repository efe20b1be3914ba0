// How a model knows where a token stands: what model/positions.py does, for places 0, 1, 2 ... in a row.

const POSITIONS = {
  none: {},
  learned: { // a vector for each place, added to the token
    place(x, t, model) {
      const table = model.tensors["positions.table"];
      for (let at = 0; at < x.length; at++) x[at] += table[at];
    },
  },
  sinusoidal: { // waves of geometric wavelengths, added to the token
    place(x, t, model, { theta }) {
      const wide = x.length / t, half = wide / 2;
      for (let i = 0; i < t; i++) for (let c = 0; c < half; c++) {
        const angle = i * theta ** (-2 * c / wide);
        x[i * wide + c] += Math.sin(angle);
        x[i * wide + half + c] += Math.cos(angle);
      }
    },
  },
  rotary: { // queries and keys turned by an angle that grows with the place; q (h t d), in place
    turn(q, t, d, model, { theta, ntk }) {
      const trained = model.spec.train_tokens, half = d / 2;
      const base = ntk && t > trained ? theta * (t / trained) ** (d / (d - 2)) : theta;
      for (let from = 0; from < q.length; from += d) for (let c = 0; c < half; c++) {
        const angle = from / d % t * base ** (-2 * c / d), [cos, sin] = [Math.cos(angle), Math.sin(angle)];
        const [first, second] = [q[from + c], q[from + half + c]];
        q[from + c] = first * cos - second * sin;
        q[from + half + c] = first * sin + second * cos;
      }
    },
  },
};
