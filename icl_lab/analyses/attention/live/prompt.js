// The numbers of the prompt: a box for each, which is typed into, dragged or pasted into, and all of them as one list.

const numeral = text => { // what a reader writes for a number; NaN for what is none
  const plain = text.trim().replace("−", "-").replace("·10^", "e");
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : NaN;
};
const split = text => text.trim().split(/[\s,;]+/).filter(Boolean);
const tidy = value => Number(value.toPrecision(6)); // of a number that is dragged or counted up
const subscript = index => String(index).replace(/\d/g, digit => "₀₁₂₃₄₅₆₇₈₉"[digit]);

function marked(numbers) { // tokens as the page writes them: the stored words where a number is a stored one
  if (!live.editable) return stored.tokens;
  const kinds = live.roles.map((_, part) => stored.tokens.filter((_, other) => other % roles === part));
  return numbers.map((value, at) => {
    const kin = kinds[at % roles], [role, quiet] = live.roles[at % roles];
    const known = stored.tokens[at]?.value === Math.fround(value) ? stored.tokens[at] : kin.find(token => token.value === Math.fround(value));
    const index = Math.floor(at / roles) + 1, text = known?.text ?? short(value);
    return { role, index, text, value, quiet, label: `${role}${subscript(index)} = ${text}` };
  });
}

function named(at) { return `${live.roles[at % roles][0]}${subscript(Math.floor(at / roles) + 1)}`; }

let typing = false; // what is typed into a box until it is left is one change

function typed(at, text, box) { // one number: in force at once if it is one
  const value = numeral(text), begun = /^([-+−]|[-+−]?\.|[-+−]?(\d+\.?\d*|\.\d+)e[-+−]?)$/i.test(text.trim());
  const wrong = begun ? "" : Number.isNaN(value) ? `${named(at)} is a number such as 1.5, −2 or 1e3; got '${text.trim() || "nothing"}'.`
    : !(Math.abs(value) <= live.largest) ? `${named(at)} may be up to ${short(live.largest)} in size; got '${text.trim()}'.` : "";
  box.setAttribute("aria-invalid", !!wrong);
  if (wrong) complain(wrong); else if (!begun) typing = put(at, [value], typing) || typing;
}

function put(at, values, again = false) { // numbers from token ``at`` on
  const numbers = [...(now.tokens ?? live.tokens)];
  values.forEach((value, more) => { numbers[at + more] = value; });
  return putAll(numbers, again);
}

const putAll = (numbers, again) => change({ tokens: numbers.length === live.tokens.length && numbers.every((value, at) => value === live.tokens[at]) ? null : numbers }, again);

function pasted(at, text) { // a list, from token ``at`` on, or all of them
  const words = split(text), values = words.map(numeral), wrong = values.findIndex(value => !(Math.abs(value) <= live.largest));
  if (!words.length) { complain("a prompt is a list of numbers such as 1, −2, 3; got none."); return false; }
  if (wrong >= 0) { complain(`'${words[wrong]}' is no number up to ${short(live.largest)} in size.`); return false; }
  return at === null ? putAll(values) : put(at, values);
}

function boxes() { // as many as there are numbers
  const place = $("live-tokens"), count = (now.tokens ?? live.tokens).length;
  while (place.children.length > count) place.lastChild.remove();
  for (let at = place.children.length; at < count; at++) place.append(box(at));
}

function box(at) {
  const label = document.createElement("label"), name = document.createElement("span"), input = document.createElement("input");
  name.textContent = named(at);
  Object.assign(input, { inputMode: "decimal", autocomplete: "off", spellcheck: false });
  input.oninput = () => typed(at, input.value, input);
  input.onblur = () => { typing = false; input.setAttribute("aria-invalid", false); fillPrompt(true); };
  input.onpaste = event => {
    const text = event.clipboardData.getData("text");
    if (split(text).length > 1) { event.preventDefault(); pasted(at, text); fillPrompt(true); }
  };
  input.onkeydown = event => {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    if (put(at, [tidy((now.tokens ?? live.tokens)[at] + step * (event.shiftKey ? 1 : 0.1))], typing)) { typing = true; fillPrompt(true); }
  };
  label.classList.toggle("quiet", !whole(at));
  label.append(name, input);
  dragged(name, at);
  return label;
}

function dragged(name, at) { // a pixel is a fiftieth of the number's size, at least of 1
  let from = null;
  name.onpointerdown = event => {
    event.preventDefault();
    name.setPointerCapture(event.pointerId);
    from = { x: event.clientX, value: (now.tokens ?? live.tokens)[at], again: false };
  };
  name.onpointermove = event => {
    if (!from) return;
    const far = event.clientX - from.x, step = Math.max(1, Math.abs(from.value)) / 50 * (event.shiftKey ? 10 : 1);
    from.wanted = tidy(from.value + far * step);
    // As often as the screen is drawn: a slow machine skips numbers rather than to lag behind.
    from.waiting ??= requestAnimationFrame(() => settle(from, at));
  };
  name.onpointerup = name.onpointercancel = () => { if (from?.waiting) { cancelAnimationFrame(from.waiting); settle(from, at); } from = null; };
}

function settle(drag, at) {
  drag.waiting = null;
  if (put(at, [drag.wanted], drag.again)) drag.again = true;
}

function more() { // another example: the last one once more, to be changed
  const numbers = [...(now.tokens ?? live.tokens)];
  for (let each = 0; each < roles; each++) numbers.push(numbers[Math.max(0, numbers.length - roles)]);
  putAll(numbers);
}

function fewer() {
  const numbers = now.tokens ?? live.tokens;
  if (numbers.length > roles) putAll(numbers.slice(0, numbers.length - roles)); else complain("a prompt has at least one example.");
}

function fillPrompt(all = false) { // what the boxes say; not the one that is typed into
  if (!live.editable) return;
  boxes();
  const numbers = now.tokens ?? live.tokens, busy = all ? null : document.activeElement;
  [...$("live-tokens").children].forEach((label, at) => {
    const input = label.lastChild;
    if (input !== busy) input.value = String(Number(numbers[at].toPrecision(6))).replace("-", "−");
    input.classList.toggle("changed", numbers[at] !== live.tokens[at]);
  });
  if ($("live-all") !== busy) $("live-all").value = numbers.map(value => Number(value.toPrecision(6))).join(", ");
}
