"use strict";
// The page of one run: its grid under shift with sliders for the axes that are not drawn, a curve, its training.
(() => {
  const { make, plain, number, heatmap, key, chart, wide, HUES, grey } = site;
  const name = location.pathname.split("/").pop().replace(/\.html$/, "");
  const data = site.held.get(`run/${decodeURIComponent(name)}`);
  if (!data) return;
  if (data.axes) grid();
  if (data.history) training();

  function grid() {
    const { axes, task } = data, at = { ...task.at };
    const index = (place) => axes.reduce((flat, axis) => flat * axis.values.length + place[axis.name], 0);
    const axis = Object.fromEntries(axes.map((each) => [each.name, each]));
    const controls = document.getElementById("controls");
    let metric = task.headline, who = data.model, log = task.log, along = task.along;

    const words = Object.fromEntries(data.metrics.map((each) => [each.name, each.label]));
    const pick = (label, values, chosen, change) => {
      const select = make("select", {}, ...values.map(([value, text]) => make("option", { value }, text)));
      select.value = chosen;
      select.addEventListener("input", () => { change(select.value); show(); });
      return make("label", {}, label, select);
    };
    controls.append(
      pick("Metric", data.metrics.map((each) => [each.name, each.label]), metric, (value) => { metric = value; }),
      pick("Predictor", data.who.map((each) => [each, each]), who, (value) => { who = value; }));
    if (axes.length > 1) {
      controls.append(
        pick("Down", axes.map((each) => [each.name, each.label]), task.down, (value) => { if (value === task.across) task.across = task.down; task.down = value; sync(); }),
        pick("Across", axes.map((each) => [each.name, each.label]), task.across, (value) => { if (value === task.down) task.down = task.across; task.across = value; sync(); }));
    }
    const sliders = make("div", { className: "filters" });
    const logBox = make("input", { type: "checkbox", checked: log });
    logBox.addEventListener("input", () => { log = logBox.checked; show(); });
    controls.append(sliders, make("label", { className: "inline" }, logBox, "log colours"));
    document.getElementById("along").append(
      pick("Along", axes.filter((each) => each.values.length > 1).map((each) => [each.name, each.label]), along, (value) => { along = value; }));

    /** Two selects that exchange their axes show what they hold. */
    function sync() {
      const [, , down, across] = controls.querySelectorAll("select");
      [down.value, across.value] = [task.down, task.across];
      slide();
    }
    function slide() {
      sliders.replaceChildren(...axes.filter((each) => each.name !== task.down && each.name !== task.across && each.values.length > 1).map((each) => {
        const output = make("output", {}, String(each.values[at[each.name]]));
        const range = make("input", { type: "range", min: 0, max: each.values.length - 1, step: 1 });
        range.value = at[each.name];
        const tell = () => range.setAttribute("aria-valuetext", `${each.values[at[each.name]]}`);
        range.addEventListener("input", () => {
          at[each.name] = Number(range.value);
          output.textContent = String(each.values[at[each.name]]);
          tell();
          show();
        });
        tell();
        const text = make("span", {}, `${each.label}: `, output);
        return make("label", {}, text, range);
      }));
    }

    const cells = (predictor) => (data.values[predictor] || {})[metric];
    function show() {
      const part = cells(who), [down, across] = [axis[task.down], axis[task.across]];
      const lost = new Set(who === data.model ? (data.lost || {})[metric] || [] : []);
      const rest = axes.filter((each) => each.name !== down.name && each.name !== across.name);
      const same = down.name === across.name;
      const label = words[metric];
      heatmap(document.getElementById("map"), {
        title: `${who}: ${label}` + rest.map((each) => `, ${each.label} ${each.values[at[each.name]]}`).join(""),
        rows: same ? [down.values[at[down.name]]] : down.values, columns: across.values, rowLabel: down.label, columnLabel: across.label, label, log,
        hint: "Point at a cell, or move between cells by the arrow keys.",
        cell: (r, c) => {
          const place = { ...at, [across.name]: c };
          if (!same) place[down.name] = r;
          const flat = index(place), value = part ? number(part.v[flat]) : null;
          const trained = Object.keys(task.trained).length > 0 && axes.every((each) => !(each.name in task.trained) || each.values[place[each.name]] === task.trained[each.name]);
          const error = part && part.e ? number(part.e[flat]) : null;
          const where = axes.map((each) => `${each.label} ${each.values[place[each.name]]}`).join(", ");
          const others = data.who.filter((each) => each !== who).map((each) => [each, ((data.values[each] || {})[metric] || { v: [] }).v[flat]])
            .filter(([, v]) => v !== null && v !== undefined).map(([each, v]) => `${each.replace("reference:", "")} ${plain(number(v))}`).join(", ");
          const said = `${where}: ${value === null ? "not measured" : plain(value)}${error ? ` ± ${plain(error)} (standard error over prompts)` : ""}`
            + (trained ? "; as in training" : "") + (lost.has(flat) ? "; some answers were no finite numbers" : "") + (others ? ". Beside it: " + others : "");
          return { value, lost: lost.has(flat), trained, said };
        },
      });
      document.getElementById("map").append(key(["trained", "as in training"], ["hatch", "not measured"]));
      const line = axis[along];
      const flats = line.values.map((_, i) => index({ ...at, [along]: i }));
      let count = 0;
      const lines = data.who.filter((each) => cells(each)).map((each) => {
        const model = each === data.model, y = flats.map((flat) => number(cells(each).v[flat]));
        return { label: each, y, ...(model ? { ...data.look, width: 2.5 } : grey(count++)) };
      });
      const model = lines.filter((each) => each.label === data.model).flatMap((each) => each.y).filter((v) => v > 0);
      const positive = lines.flatMap((each) => each.y).filter(Number.isFinite).every((v) => v > 0) && model.length > 0;
      // References that solve the task to rounding would squeeze everything else.
      const floor = positive ? Math.min(...model) / 1000 : 0;
      const shown = lines.filter((each) => each.label === data.model || !log || each.y.some((v) => v > floor));
      const fixed = axes.filter((each) => each.name !== along).map((each) => `${each.label} ${each.values[at[each.name]]}`).join(", ");
      chart(document.getElementById("curve"), { title: label, x: line.values, lines: shown, xLabel: line.label, yLabel: label, logY: log, logX: wide(line.values) });
      const left = lines.filter((each) => !shown.includes(each)).map((each) => each.label);
      document.getElementById("curve").append(make("p", { className: "soft" }, (fixed ? `At ${fixed}.` : "") + (left.length ? ` Below a thousandth of the model's least error, and not drawn: ${left.join(", ")}.` : "")));
    }
    slide();
    show();
  }

  function training() {
    const { history } = data, x = history.step;
    const positive = history.loss.every((v) => v === null || number(v) > 0);
    chart(document.getElementById("losses"), { title: "training loss", x, xLabel: "step", yLabel: "training loss", logY: positive, lines: [{ label: "loss", y: history.loss.map(number), color: data.look.color, width: 1.8 }] });
    const names = Object.keys(history).filter((each) => !["step", "loss", "length", "rate"].includes(each));
    const box = document.getElementById("parameters");
    if (!box || !names.length) return;
    const few = names.slice(0, 24);
    chart(box, { title: "learned parameters", x, xLabel: "step", yLabel: "value", lines: few.map((each, i) => ({ label: each, y: history[each].map(number), color: HUES[i % HUES.length], dash: i >= HUES.length ? [5, 3] : [], width: 1.4 })) });
    if (names.length > few.length) box.append(make("p", { className: "soft" }, `The first ${few.length} of ${names.length} are drawn.`));
  }
})();
