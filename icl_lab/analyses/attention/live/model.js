// A model in the page: the graph of its trunk, with a hole in each layer that the graphs of a normalizer fill.
// Of attention maps only what is seen is held, row after row, as in the frames of attention.js.

class Refused extends Error {} // what a reader asks for cannot be done; the message is one line

const above = i => i * (i + 1) / 2; // visible cells above row i of one head

function seen(x) { // (1 h t t) -> the visible cells
  const [, heads, t] = x.shape, out = new Float64Array(heads * above(t));
  for (let row = 0, to = 0; row < heads * t; to += row++ % t + 1) out.set(x.data.subarray(row * t, row * t + row % t + 1), to);
  return out;
}

function put(x, head, cells) { // visible cells in the place of a head's own
  const t = x.shape[2];
  for (let i = 0; i < t; i++) x.data.set(cells.subarray(above(i), above(i + 1)), (head * t + i) * t);
}

function model(packed, graphs) {
  const graph = part => part && opened(graphs[part.graph], part), normalizers = new Map(), swaps = new Map(packed.swaps);
  const layers = choice => (choice ? swaps.get(choice) : packed.own).map(({ weights, output }) => ({ weights: graph(weights), output: graph(output) }));
  return {
    ...packed, trunk: graph(packed.trunk), choices: [...swaps.keys()],
    normalizer(choice) { // its graphs in each layer; "" is the one of the training
      if (choice && !swaps.has(choice)) throw new Refused(`'${choice}' was not put into this page; there is: ${this.choices.join(", ") || "none"}.`);
      if (!normalizers.has(choice)) normalizers.set(choice, layers(choice));
      return normalizers.get(choice);
    },
  };
}

// off(layer, head): whether a head adds nothing; patch(layer, head): visible cells in the place of a head's weights, or
// nothing, as analyses/saturation/patching.py does.
function forward(of, numbers, { choice = "", off = () => false, patch = () => null } = {}) {
  const { reads, vocabulary, heads } = of.spec, t = numbers.length / reads, graphs = of.normalizer(choice), weights = [];
  const tokens = make(vocabulary ? [1, t] : [1, t, reads], Float64Array.from(numbers));
  const each = [...Array(heads).keys()];
  const [outputs, ...scores] = run(of.trunk, [tokens], {
    "icl_lab.weights": (x, q, k, layer) => {
      const [found] = run(graphs[layer].weights, [x, q, k]), w = make(found.shape, Float64Array.from(found.data));
      for (const head of each) { const other = patch(layer, head); if (other) put(w, head, other); }
      weights[layer] = seen(w);
      return w;
    },
    "icl_lab.output": (x, o, layer) => {
      const [found] = graphs[layer].output ? run(graphs[layer].output, [x, o]) : [o], out = make(found.shape, Float64Array.from(found.data));
      for (const head of each) if (off(layer, head)) out.data.fill(0, head * out.data.length / heads, (head + 1) * out.data.length / heads);
      return out;
    },
  });
  return { layers: scores.map((z, layer) => ({ weights: weights[layer], scores: seen(z) })), outputs: outputs.data };
}
