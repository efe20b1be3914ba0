"use strict";
// The page of a specification: the grid of a seed under shift with sliders for axes not drawn, a curve, the training.
(() => {
  const { make, pick, plain, number, flat, heatmap, key, chart, wide, HUES, grey } = site;
  const name = location.pathname.split("/").pop().replace(/\.html$/, "");
  const data = site.held.get(`run/${decodeURIComponent(name)}`);
  if (!data) return;
  const seeds = data.seeds || Object.keys(data.history).map(Number), redraw = [];
  let seed = 0; // the place of the one that is shown
  const select = make("select", {}, ...seeds.map((value, i) => make("option", { value: i }, String(value))));
  select.addEventListener("input", () => { seed = Number(select.value); redraw.forEach((each) => each()); });
  document.getElementById("seeds").append(make("label", {}, "Training seed", select));
  if (data.axes) grid();
  if (data.history) training();

  function grid() {
    const { axes, task } = data, at = { ...task.at };
    const axis = Object.fromEntries(axes.map((each) => [each.name, each]));
    const controls = document.getElementById("controls");
    const { log } = task;
    let metric = task.headline, who = data.model, along = task.along;

    const words = Object.fromEntries(data.metrics.map((each) => [each.name, each.label]));
    controls.append(
      pick("Metric", data.metrics.map((each) => [each.name, each.label]), metric, (value) => { metric = value; show(); }),
      pick("Predictor", data.who.map((each) => [each, each]), who, (value) => { who = value; show(); }));
    const sliders = make("div", { className: "filters" });
    controls.append(sliders);
    document.getElementById("along").append(
      pick("Along", axes.filter((each) => each.values.length > 1).map((each) => [each.name, each.label]), along, (value) => { along = value; show(); }));

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

    // A list a seed, or one for all of them.
    const values = (predictor, part, place = seed) => {
      const lists = ((data.values[predictor] || {})[metric] || {})[part] || [];
      return lists.length > 1 ? lists[place] : lists[0] || [];
    };
    const has = (predictor) => values(predictor, "v").length > 0;
    function show() {
      const [down, across] = [axis[task.down], axis[task.across]];
      const lost = new Set(who === data.model ? (data.lost[seeds[seed]] || {})[metric] || [] : []);
      const rest = axes.filter((each) => each.name !== down.name && each.name !== across.name);
      const same = down.name === across.name;
      const label = words[metric];
      heatmap(document.getElementById("map"), {
        title: `${who}${who === data.model ? `, seed ${seeds[seed]}` : ""}: ${label}` + rest.map((each) => `, ${each.label} ${each.values[at[each.name]]}`).join(""),
        rows: same ? [down.values[at[down.name]]] : down.values, columns: across.values, rowLabel: down.label, columnLabel: across.label, label, log,
        hint: "Point at a cell, or move between cells by the arrow keys.",
        cell: (r, c) => {
          const place = { ...at, [across.name]: c };
          if (!same) place[down.name] = r;
          const cell = flat(axes, place), value = has(who) ? number(values(who, "v")[cell]) : null;
          const trained = Object.keys(task.trained).length > 0 && axes.every((each) => !(each.name in task.trained) || each.values[place[each.name]] === task.trained[each.name]);
          const error = number(values(who, "e")[cell]);
          const where = axes.map((each) => `${each.label} ${each.values[place[each.name]]}`).join(", ");
          const others = data.who.filter((each) => each !== who).map((each) => [each, values(each, "v")[cell]])
            .filter(([, v]) => v !== null && v !== undefined).map(([each, v]) => `${each.replace("reference:", "")} ${plain(number(v))}`).join(", ");
          const said = `${where}: ${value === null ? "not measured" : plain(value)}${error ? ` ± ${plain(error)} (standard error over prompts)` : ""}`
            + (trained ? "; as in training" : "") + (lost.has(cell) ? "; some answers were no finite numbers" : "") + (others ? ". Beside it: " + others : "");
          return { value, lost: lost.has(cell), trained, said };
        },
      });
      document.getElementById("map").append(key(["trained", "as in training"], ["hatch", "not measured"]));
      const line = axis[along];
      const cells = line.values.map((_, i) => flat(axes, { ...at, [along]: i }));
      let count = 0;
      const lines = data.who.filter((each) => has(each)).map((each) => {
        const model = each === data.model, y = cells.map((cell) => number(values(each, "v")[cell]));
        return { label: each, y, ...(model ? { ...data.look, width: 2.5 } : grey(count++)) };
      });
      // The other seeds, thinner.
      seeds.forEach((value, i) => {
        if (i === seed || !has(data.model)) return;
        lines.push({ label: `seed ${value}`, y: cells.map((cell) => number(values(data.model, "v", i)[cell])), ...data.look, width: 0.8, quiet: true });
      });
      const model = lines.filter((each) => each.label === data.model).flatMap((each) => each.y).filter((v) => v > 0);
      const positive = lines.flatMap((each) => each.y).filter(Number.isFinite).every((v) => v > 0) && model.length > 0;
      // References that solve the task to rounding would squeeze everything else.
      const floor = positive ? Math.min(...model) / 1000 : 0;
      const shown = lines.filter((each) => !each.label.startsWith("reference:") || !log || each.y.some((v) => v > floor));
      const fixed = axes.filter((each) => each.name !== along).map((each) => `${each.label} ${each.values[at[each.name]]}`).join(", ");
      chart(document.getElementById("curve"), { title: label, x: line.values, lines: shown, xLabel: line.label, yLabel: label, logY: log, logX: wide(line.values) });
      const left = lines.filter((each) => !shown.includes(each)).map((each) => each.label);
      document.getElementById("curve").append(make("p", { className: "soft" }, (fixed ? `At ${fixed}.` : "") + (seeds.length > 1 ? " Thin: the other training seeds." : "") + (left.length ? ` Below a thousandth of the model's least error, and not drawn: ${left.join(", ")}.` : "")));
    }
    redraw.push(show);
    slide();
    show();
  }

  function training() {
    const named = Object.keys(data.history), loss = document.getElementById("losses"), box = document.getElementById("parameters");
    function show() {
      const own = String(seeds[seed]) in data.history ? String(seeds[seed]) : named[0], rows = data.history[own];
      const step = data.steps[data.steps.length > 1 ? named.indexOf(own) : 0];
      const same = named.filter((each) => data.steps.length === 1 || each === own);
      const lines = same.map((each) => ({ label: `seed ${each}`, y: data.history[each].loss.map(number), color: data.look.color, width: each === own ? 2 : 0.7, quiet: each !== own }));
      const positive = lines.every((line) => line.y.every((v) => v === null || v > 0));
      chart(loss, { title: "training loss", x: step, xLabel: "step", yLabel: "training loss", logY: positive, lines });
      const learned = Object.keys(rows).filter((each) => each !== "loss");
      if (!box || !learned.length) return;
      chart(box, { title: "learned parameters", x: step, xLabel: "step", yLabel: "value", lines: learned.map((each, i) => ({ label: each, y: rows[each].map(number), color: HUES[i % HUES.length], dash: i >= HUES.length ? [5, 3] : [], width: 1.4 })) });
    }
    redraw.push(show);
    show();
  }
})();
