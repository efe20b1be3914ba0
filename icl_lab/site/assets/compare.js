"use strict";
// Any runs of one task beside each other, chosen here; the chosen ones stand in the address.
(() => {
  const { make, plain, number, heatmap, fit, bar, key, chart, wide, HUES, grey, mean, effect } = site;
  const index = site.held.get("runs/runs");
  const get = (id) => document.getElementById(id);
  if (!index || !index.length) {
    get("said").textContent = "There is no finished run to compare.";
    return;
  }
  const known = new Map(index.map((run) => [run.id, run]));
  const groups = new Map();
  for (const run of index) {
    if (!groups.has(run.group)) groups.set(run.group, []);
    groups.get(run.group).push(run);
  }
  const chosen = new Set();
  let task = "", baseline = "", state = null, turn = 0;

  function read() {
    chosen.clear();
    const asked = site.asked();
    for (const id of (asked.get("runs") || "").split(",")) if (known.has(id)) chosen.add(id);
    const first = known.get([...chosen][0]);
    const wanted = first ? first.task : asked.get("task");
    task = index.some((run) => run.task === wanted) ? wanted : index[0].task;
    for (const id of [...chosen]) if (known.get(id).task !== task) chosen.delete(id);
    baseline = asked.get("baseline") || "";
    state = null;
    fill();
    show();
  }
  function write() {
    const told = [["runs", [...chosen].join(",")], ["baseline", baseline], ["task", chosen.size ? "" : task]];
    history.replaceState(null, "", "#" + told.filter(([, value]) => value).map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`).join("&"));
    show();
  }

  // What can be chosen.
  const options = (select, values, value) => {
    select.replaceChildren(...values.map(([each, text]) => make("option", { value: each }, text)));
    select.value = value;
  };
  function fill() {
    options(get("task"), [...new Set(index.map((run) => run.task))].map((each) => [each, each]), task);
    const presets = [...new Set(index.filter((run) => run.task === task).map((run) => run.preset))];
    options(get("preset"), [["", "all"], ...presets.map((each) => [each, each])], presets.includes(get("preset").value) ? get("preset").value : "");
    list();
  }
  function list() {
    const words = get("find").value.toLowerCase().split(/\s+/).filter(Boolean), preset = get("preset").value;
    const lines = [];
    const ordered = [...groups].sort(([, a], [, b]) => b.some((run) => chosen.has(run.id)) - a.some((run) => chosen.has(run.id)));
    for (const [, runs] of ordered) {
      const first = runs[0];
      const picked = runs.some((run) => chosen.has(run.id));
      const told = `${first.name} ${first.preset} ${first.spec} ${first.differs}`.toLowerCase();
      if (first.task !== task || (!picked && ((preset && first.preset !== preset) || !words.every((word) => told.includes(word))))) continue;
      const whole = make("input", { type: "checkbox", checked: runs.every((run) => chosen.has(run.id)) });
      whole.indeterminate = picked && !whole.checked;
      whole.addEventListener("input", () => {
        for (const run of runs) whole.checked ? chosen.add(run.id) : chosen.delete(run.id);
        boxes.forEach((box) => { box.checked = whole.checked; });
        write();
      });
      const boxes = runs.map((run) => {
        const box = make("input", { type: "checkbox", checked: chosen.has(run.id) });
        box.addEventListener("input", () => {
          box.checked ? chosen.add(run.id) : chosen.delete(run.id);
          whole.checked = runs.every((each) => chosen.has(each.id));
          whole.indeterminate = !whole.checked && runs.some((each) => chosen.has(each.id));
          write();
        });
        return box;
      });
      lines.push(make("div", { className: "choice" }, make("label", {}, whole, ` ${first.name} `, make("span", { className: "soft" }, `${first.preset} ${first.differs}`)),
        make("span", { className: "seeds" }, "seeds ", ...runs.flatMap((run, i) => [make("label", {}, boxes[i], `${run.seed} `)]))));
    }
    get("groups").replaceChildren(make("legend", {}, `Specifications of ${task}`), ...(lines.length ? lines : [make("p", { className: "soft" }, "None has these words.")]));
  }
  get("task").addEventListener("input", () => { task = get("task").value; chosen.clear(); baseline = ""; state = null; fill(); write(); });
  get("preset").addEventListener("input", list);
  get("find").addEventListener("input", list);

  // What is chosen, loaded.
  async function show() {
    const mine = (turn += 1), wanted = [...chosen].map((id) => known.get(id));
    const names = new Set(wanted.map((run) => run.group));
    if (!wanted.length) {
      get("shown").hidden = true;
      get("said").textContent = "Nothing is chosen yet.";
      return;
    }
    let loaded;
    try {
      loaded = await Promise.all(wanted.map(async (run) => ({ run, data: await site.load("run", run.id) })));
    } catch (error) {
      get("said").textContent = `${error.message}; build the site again.`;
      return;
    }
    if (mine !== turn) return; // something else was chosen meanwhile
    draw(loaded, names);
  }

  function draw(loaded, names) {
    const first = loaded[0].data, { task: about } = first;
    const axes = first.axes.map((axis) => ({ ...axis, values: axis.values.filter((value) => loaded.every(({ data }) => {
      const same = data.axes.find((each) => each.name === axis.name);
      return same && same.values.includes(value);
    })) }));
    const alike = loaded.every(({ data }) => data.axes.length === first.axes.length);
    if (!alike || axes.some((axis) => !axis.values.length)) {
      get("shown").hidden = true;
      get("said").textContent = "These runs were tested at different places: no cell is common to all of them.";
      return;
    }
    const left = loaded.some(({ data }) => data.axes.some((axis) => axis.values.length > axes.find((each) => each.name === axis.name).values.length));
    const metrics = first.metrics.filter((metric) => loaded.every(({ data }) => (data.values[data.model] || {})[metric.name]));
    if (!state) state = { metric: about.headline, log: about.log, at: null, along: about.along, down: about.down, across: about.across };
    if (!metrics.some((metric) => metric.name === state.metric)) state.metric = metrics[0].name;
    const nearest = (axis) => axis.values.reduce((best, value, i) => {
      const wanted = about.trained[axis.name] ?? axis.values[0];
      return Math.abs(value - wanted) < Math.abs(axis.values[best] - wanted) ? i : best;
    }, 0);
    if (!state.at) state.at = Object.fromEntries(axes.map((axis) => [axis.name, axis.values[nearest(axis)]]));
    for (const axis of axes) if (!axis.values.includes(state.at[axis.name])) state.at[axis.name] = axis.values[nearest(axis)];
    const teams = [...names].map((name, i) => team(name, loaded.filter(({ run }) => run.group === name), i));
    const colors = teams.map((each) => each.color);
    teams.forEach((each, i) => { if (colors.indexOf(each.color) !== i) each.color = HUES[i % HUES.length]; });
    if (!teams.some((each) => each.group === baseline)) baseline = teams[0].group;
    get("said").textContent = `${teams.length} specification${teams.length === 1 ? "" : "s"}, ${loaded.length} run${loaded.length === 1 ? "" : "s"}.` +
      (teams.length < 2 ? " Choose a second one to compare." : "") + (left ? " Only cells that all of them have are shown." : "");
    get("shown").hidden = false;
    const label = metrics.find((metric) => metric.name === state.metric).label;
    const redraw = () => draw(loaded, names);
    controls(axes, metrics, teams, redraw);
    lines(axes, teams, label);
    curves(axes, teams, label, loaded, redraw);
    maps(axes, teams, label);
    learning(teams);
    const rules = [...new Set(teams.map((each) => each.first.name))], presets = new Set(teams.map((each) => each.first.preset));
    const quoted = (text) => (/^[A-Za-z0-9_.,:=+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
    const seeds = Math.max(...loaded.map(({ run }) => run.seed)) + 1;
    get("command").textContent = presets.size === 1 && rules.length > 1 && teams.every((each) => !each.first.differs && !each.first.swap)
      ? `icl-lab compare --task ${quoted(task)} ${rules.map((rule) => `--attn ${quoted(rule)}`).join(" ")} --preset ${quoted(teams[0].first.preset)} --seeds ${seeds} --baseline ${quoted(teams.find((each) => each.group === baseline).first.name)}`
      : "icl-lab compare --help   (these differ in more than the rule: give their fields by --set)";
  }

  /** A specification by its rule; by preset and changed fields where several have that rule, by hash where these agree. */
  function called(run) {
    const told = (each) => [each.preset, each.differs].filter(Boolean).join(", ");
    const same = [...groups.values()].map(([first]) => first).filter((first) => first.task === task && first.name === run.name);
    if (same.length < 2) return run.name;
    return `${run.name} (${told(run)}${same.filter((first) => told(first) === told(run)).length > 1 ? `, ${run.spec}` : ""})`;
  }

  /** One specification with its seeds: what it is called, and its values in a cell by seed. */
  function team(group, members, i) {
    const first = members[0].run;
    const value = (data, place) => {
      const flat = data.axes.reduce((sum, axis) => sum * axis.values.length + axis.values.indexOf(place[axis.name]), 0);
      return number(data.values[data.model][state.metric].v[flat]);
    };
    return {
      group, first, members, color: members[0].data.look.color, dash: members[0].data.look.dash,
      label: called(first),
      at: (place) => new Map(members.map(({ run, data }) => [run.seed, value(data, place)])),
    };
  }

  function controls(axes, metrics, teams, redraw) {
    const pick = (label, values, value, change) => {
      const select = make("select", { id: `pick-${label}` }, ...values.map(([each, text]) => make("option", { value: each }, text)));
      select.value = value;
      select.addEventListener("input", () => { change(select.value); redraw(); get(`pick-${label}`).focus(); });
      return make("label", {}, label, select);
    };
    const log = make("input", { type: "checkbox", checked: state.log, id: "log" });
    log.addEventListener("input", () => { state.log = log.checked; redraw(); get("log").focus(); });
    const sliders = axes.filter((axis) => axis.values.length > 1).map((axis) => {
      const id = `slide-${axis.name}`, output = make("output", {}, String(state.at[axis.name]));
      const range = make("input", { type: "range", min: 0, max: axis.values.length - 1, step: 1, id });
      range.value = axis.values.indexOf(state.at[axis.name]);
      range.setAttribute("aria-valuetext", String(state.at[axis.name]));
      range.addEventListener("input", () => { state.at[axis.name] = axis.values[Number(range.value)]; redraw(); get(id).focus(); });
      return make("label", {}, make("span", {}, `${axis.label}: `, output), range);
    });
    get("controls").replaceChildren(
      pick("Metric", metrics.map((each) => [each.name, each.label]), state.metric, (value) => { state.metric = value; }),
      pick("Baseline", teams.map((each) => [each.group, each.label]), baseline, (value) => { baseline = value; write(); }),
      ...sliders, make("label", { className: "inline" }, log, "ratios and log colours"));
  }

  const times = (value) => (value < 9.95 && value >= 0.095 ? value.toFixed(2) : site.short(value));
  const signedText = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
  const span = (found) => (found.low === null ? "" : ` [${plain(found.low)}, ${plain(found.high)}]`);
  const others = (axes, ...drawn) => axes.filter((axis) => !drawn.includes(axis.name) && axis.values.length > 0).map((axis) => `${axis.label} ${state.at[axis.name]}`).join(", ");

  function lines(axes, teams, label) {
    const base = teams.find((each) => each.group === baseline);
    const rows = teams.map((each) => {
      const here = mean([...each.at(state.at).values()], state.log), found = each === base ? null : effect(each.at(state.at), base.at(state.at), state.log);
      const told = each === base ? "baseline" : found === null ? "–" : `${plain(found.value)}${span(found)}${found.clear ? "" : found.low === null ? " (one pair of seeds says nothing)" : ", not told apart"}`;
      return make("tr", {}, make("th", { scope: "row" }, each.label), make("td", {}, here.mean === null ? "–" : plain(here.mean) + span(here)), make("td", {}, told), make("td", {}, String(each.members.length)));
    });
    const head = ["rule", label, state.log ? `ratio to ${base.label}` : `difference to ${base.label}`, "seeds"];
    get("lines").replaceChildren(make("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "In one line each" }, make("table", {}, make("thead", {}, make("tr", {}, ...head.map((each) => make("th", { scope: "col" }, each)))), make("tbody", {}, ...rows))),
      make("p", { className: "soft" }, `At ${others(axes)}. ${state.log ? "Geometric means" : "Means"} over training seeds with 95 % intervals by Student's t; effects are paired over the seeds that both have.`));
  }

  function curves(axes, teams, label, loaded, redraw) {
    const axis = axes.find((each) => each.name === state.along && each.values.length > 1) || axes.find((each) => each.values.length > 1) || axes[0];
    const select = make("select", { id: "pick-along" }, ...axes.filter((each) => each.values.length > 1).map((each) => make("option", { value: each.name }, each.label)));
    select.value = axis.name;
    select.addEventListener("input", () => { state.along = select.value; redraw(); get("pick-along").focus(); });
    get("along").replaceChildren(make("label", {}, "Along", select));
    const drawn = teams.map((each) => {
      const found = axis.values.map((value) => mean([...each.at({ ...state.at, [axis.name]: value }).values()], state.log));
      const line = { label: each.label, color: each.color, dash: each.dash, y: found.map((one) => one.mean) };
      return found.some((one) => one.low !== null) ? { ...line, low: found.map((one) => one.low), high: found.map((one) => one.high) } : line;
    });
    const { data } = loaded[0];
    const least = Math.min(...drawn.flatMap((line) => line.y).filter((v) => v > 0)) / 1000;
    const references = data.who.filter((name) => name !== data.model && data.values[name][state.metric]).map((name, i) => ({
      label: name, ...grey(i),
      y: axis.values.map((value) => {
        const flat = data.axes.reduce((sum, each) => sum * each.values.length + each.values.indexOf(each.name === axis.name ? value : state.at[each.name]), 0);
        return number(data.values[name][state.metric].v[flat]);
      }),
    })).filter((line) => !state.log || line.y.some((v) => v > least));
    chart(get("curve"), { title: label, x: axis.values, xLabel: axis.label, yLabel: label, logY: state.log, logX: wide(axis.values), lines: [...drawn, ...references] });
    get("curve").append(make("p", { className: "soft" }, `At ${others(axes, axis.name) || "all there is"}. Bands: 95 % over the seeds (none with one seed). References are grey.`));
  }

  function maps(axes, teams, label) {
    const [down, across] = [state.down, state.across].map((name) => axes.find((axis) => axis.name === name));
    const base = teams.find((each) => each.group === baseline), rest = teams.filter((each) => each !== base);
    const place = (r, c) => ({ ...state.at, [down.name]: down.values[r], [across.name]: across.values[c] });
    const where = (r, c) => `${down.label} ${down.values[r]}, ${across.label} ${across.values[c]}`;
    const every = down.values.flatMap((_, r) => across.values.map((_, c) => place(r, c)));
    const common = { rows: down.values, columns: across.values, rowLabel: down.label, columnLabel: across.label };
    const middle = state.log ? 1 : 0;
    const effects = rest.flatMap((each) => every.map((cell) => effect(each.at(cell), base.at(cell), state.log))).filter(Boolean).map((found) => found.value);
    const signed = fit(effects, state.log, middle, state.log ? 1.25 : 0.05);
    const words = state.log ? `error / error of ${base.label}` : `error − error of ${base.label}`;
    get("rule").textContent = rest.length ? `${words}: blue is better, red worse. Hatched: the 95 % interval over paired seeds includes no effect, or there are fewer than two pairs. Each cell by itself, not corrected for their number.` : "With one specification there is nothing to set it against.";
    get("ratios").replaceChildren(...rest.map((each) => {
      const box = make("div");
      heatmap(box, { ...common, title: `${each.label} against ${base.label}`, ramp: "signed", scale: signed, format: state.log ? times : signedText, bare: true, label: words,
        cell: (r, c) => {
          const found = effect(each.at(place(r, c)), base.at(place(r, c)), state.log);
          const said = found ? `${where(r, c)}: ${state.log ? "ratio" : "difference"} ${plain(found.value)}${span(found)}${found.n ? `, ${found.n} paired seed${found.n === 1 ? "" : "s"}` : ", no seed in common"}` : `${where(r, c)}: no number`;
          return { value: found ? found.value : null, unclear: found && !found.clear, said };
        } });
      return box;
    }), ...(rest.length ? [make("div", { className: "heat" }, bar(signed, "signed", words), key(["hatch", "not told apart"]))] : []));
    const plainScale = fit(teams.flatMap((each) => every.map((cell) => mean([...each.at(cell).values()], state.log).mean)).filter((v) => v !== null), state.log);
    get("maps").replaceChildren(...teams.map((each) => {
      const box = make("div");
      heatmap(box, { ...common, title: each.label, scale: plainScale, bare: true, label,
        cell: (r, c) => {
          const found = mean([...each.at(place(r, c)).values()], state.log);
          return { value: found.mean, said: `${where(r, c)}: ${found.mean === null ? "no number" : plain(found.mean) + span(found)}, ${found.n} seed${found.n === 1 ? "" : "s"}` };
        } });
      return box;
    }), make("div", { className: "heat" }, bar(plainScale, "plain", label)));
  }

  function learning(teams) {
    const members = teams.flatMap((each) => each.members.map((member) => ({ ...member, team: each }))).filter(({ data }) => data.history);
    const steps = [...new Set(members.flatMap(({ data }) => data.history.step))].sort((a, b) => a - b);
    const drawn = members.slice(0, 24).map(({ run, data, team }) => {
      const loss = new Map(data.history.step.map((step, i) => [step, number(data.history.loss[i])]));
      return { label: `${team.label}, seed ${run.seed}`, color: team.color, dash: team.dash, width: 1.3, gaps: true, y: steps.map((step) => loss.get(step) ?? null) };
    });
    if (!drawn.length) {
      get("losses").replaceChildren(make("p", { className: "soft" }, "No history is stored for these."));
      return;
    }
    const same = members.every(({ data }) => data.history.step.length === steps.length);
    chart(get("losses"), { title: "training loss", x: steps, xLabel: "step", yLabel: "training loss", logY: drawn.every((line) => line.y.every((v) => v === null || v > 0)), lines: drawn, table: false });
    if (!same || members.length > drawn.length) get("losses").append(make("p", { className: "soft" }, `${members.length > drawn.length ? `The first ${drawn.length} of ${members.length} runs. ` : ""}${same ? "" : "Runs of different length: where steps are not the same, curves are drawn as points."}`));
  }

  addEventListener("hashchange", read);
  read();
})();
