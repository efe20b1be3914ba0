// A rule as one types it, NAME:option=value,option=value or X+reweight:p=3, read as the command line reads it.
// Names, options, their kinds and defaults are those of the registry, which the page carries.

class Refused extends Error {} // what was typed cannot be done; the message is one line for the reader

function parsed(text) { // "ssa:n=2+reweight" -> [{ name, given }], the rule first
  return text.trim().split(/\+(?=[A-Za-z])/).map(part => {
    const [, name, rest] = /^\s*([^:\s]*)\s*(?::(.*))?$/s.exec(part) ?? [], given = {};
    const pairs = rest === undefined ? [] : rest.split(",").map(item => item.split(/=(.*)/s).slice(0, 2).map(word => word.trim()));
    if (!name || pairs.some(pair => pair.length < 2 || !pair[0] || !pair[1]))
      throw new Refused(`'${part.trim()}' is not of the form NAME or NAME:option=value,option=value.`);
    for (const [key, value] of pairs) {
      if (key in given) throw new Refused(`'${part.trim()}' gives the option '${key}' twice.`);
      given[key] = value;
    }
    return { name, given };
  });
}

const written = value => value === true ? "yes" : value === false ? "no" : String(value);

function valueOf(text, kinds) { // the first kind of option that the text fits: bool, int, float, or one of some words
  for (const kind of kinds) {
    if (Array.isArray(kind)) { const found = kind.find(value => written(value) === text); if (found !== undefined) return found; }
    else if (kind === "bool") { if (text === "yes" || text === "no") return text === "yes"; }
    else if (kind === "int" ? /^[+-]?\d+$/.test(text) : /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) {
      if (Math.abs(Number(text)) <= 1e15) return Number(text);
    }
  }
  return undefined;
}

function options(name, given, known) {
  const found = Object.fromEntries(Object.entries(known).map(([key, { value }]) => [key, value]));
  for (const [key, text] of Object.entries(given)) {
    const there = Object.keys(known).join(", ");
    if (!(key in known)) throw new Refused(`'${name}' has no option '${key}'; ${there ? `there is: ${there}` : "it has none"}.`);
    found[key] = valueOf(text, known[key].kinds);
    if (found[key] === undefined) {
      const wanted = known[key].kinds.map(kind => ({ bool: "yes or no", int: "a whole number", float: "a number" })[kind] ?? kind.map(written).join(", "));
      throw new Refused(`'${name}': ${key} must be ${wanted.join(" or ")}, got '${text}'.`);
    }
  }
  return found;
}

// text -> { weights(pass), output(pass, sums) }, with parameters as given (a list by layer of those of the rule and of
// each wrapper), or at their start. Throws Refused on what is no rule that the page can compute in this model.
function ruleOf(text, model, parameters) {
  const { spec } = model, site = layer => ({ heads: spec.heads, head_dim: spec.width / spec.heads, train_tokens: spec.train_tokens, width: spec.width, layer });
  const links = parsed(text).map(({ name, given }, place) => {
    const table = place ? WRAPPERS : RULES, known = model.known[place ? "wrappers" : "rules"], made = table[name];
    if (!made || !known[name]) throw new Refused(`there is no ${place ? "wrapper" : "rule"} '${name}' here; there is: ${Object.keys(table).filter(each => known[each]).sort().join(", ")}.`);
    const o = options(name, given, known[name].options), wrong = made.check?.(o, site(0));
    if (wrong) throw new Refused(`'${name}': ${wrong}.`);
    return { name, made, o, place };
  });
  links.forEach(({ name }, place) => {
    const inside = links.slice(0, place).map(link => link.name);
    if (name === "reweight" && !sums(links[0]))
      throw new Refused("re-weighting keeps what is above the uniform share 1/n, so it needs rows that sum to 1.");
    if (name === "reweight" && inside.some(each => ["forget", "gated"].includes(each)))
      throw new Refused("'reweight' reads queries and keys alone, and what it stands around reads the tokens, too.");
    if (name === "gated" && inside.includes("gated")) throw new Refused("a gate on a gate is one gate with more numbers: take one.");
  });
  const starts = layer => links.map(link => link.made.carried ? carried(link, model, layer) : link.made.start?.(link.o, site(layer)) ?? {});
  const layers = Array.from({ length: spec.layers }, (_, layer) => (parameters?.[layer].map(arrays) ?? starts(layer)).map(
    (p, place) => ({ p, o: links[place].o, site: site(layer) })));
  return {
    text,
    weights: pass => links.reduce((inside, { made }, place) => {
      const c = layers[pass.layer][place];
      if (made.row) return eachRow(pass, (z, n, h, i) => made.row(z, n, { ...c, h, i }));
      return made.weights ? made.weights(pass, c, inside) : inside;
    }, null),
    output: (pass, sums) => links.reduce((found, { made }, place) => made.output ? made.output(pass, layers[pass.layer][place], found) : found, sums),
  };
}

const sums = ({ made, o }) => typeof made.sums === "function" ? made.sums(o) : made.sums ?? true;

const arrays = parameters => Object.fromEntries(Object.entries(parameters).map(([name, text]) => [name, decoded(text)]));

function carried({ name, o }, model, layer) { // drawn starts, of which the page holds those of some options
  const found = model.known.starts.find(each => each.name === name && Object.entries(each.options).every(([key, value]) => o[key] === value));
  if (!found) throw new Refused(`'${name}' starts at numbers drawn at random, which the page holds only for ${
    model.known.starts.filter(each => each.name === name).map(each => Object.entries(each.options).map(([key, value]) => `${key}=${value}`).join(",")).join(" and ")}.`);
  return arrays(found.layers[layer]);
}
