"use strict";
// Several runs on one chart: the data files that the address names are loaded, and their curves drawn together.
(() => {
  const { make, pick, number, flat, chart, wide, HUES } = site;
  const said = document.getElementById("said"), MOST = 8;
  const ids = [...new Set(site.asked().getAll("run"))].filter((id) => /^[\w.-]+$/.test(id));
  addEventListener("hashchange", () => location.reload());
  if (!ids.length) return;
  if (ids.length > MOST) { said.textContent = `At most ${MOST} runs fit one chart; ${ids.length} are asked for.`; return; }
  let left = ids.length;
  for (const id of ids) {
    const script = make("script", { src: `data/${encodeURIComponent(id)}.js` });
    script.onload = script.onerror = () => { left -= 1; if (!left) draw(); };
    document.head.append(script);
  }

  function draw() {
    const found = ids.filter((id) => site.held.has(`run/${id}`)).map((id, i) => ({ ...site.held.get(`run/${id}`), id, hue: HUES[i] }));
    const missing = ids.length - found.length;
    said.textContent = missing ? `${missing} of these runs ${missing === 1 ? "is" : "are"} not in this site.` : "";
    document.getElementById("runs").append(...found.map((run) => make("li", {}, make("a", { href: `runs/${run.id}.html` }, run.label))));
    const tested = found.filter((run) => run.axes), trained = found.filter((run) => run.history);
    if (tested.length) shift(tested);
    if (trained.length) training(trained);
  }

  /** What all runs have, in the order of the first. */
  const shared = (lists) => lists[0].filter((each) => lists.every((list) => list.some((other) => other.name === each.name)));

  function shift(runs) {
    const metrics = shared(runs.map((run) => run.metrics));
    const axes = shared(runs.map((run) => run.axes)).filter((axis) => runs.some((run) => run.axes.find((each) => each.name === axis.name).values.length > 1));
    if (!metrics.length || !axes.length) {
      said.append(" These runs share no metric and axis of a test, so that only their trainings are drawn.");
      return;
    }
    const first = runs[0].task, prefer = (list, name) => (list.some((each) => each.name === name) ? name : list[0].name);
    let metric = prefer(metrics, first.headline), along = prefer(axes, first.along);
    const words = (list) => list.map((each) => [each.name, each.label]);
    document.getElementById("controls").append(
      pick("Metric", words(metrics), metric, (value) => { metric = value; show(); }),
      pick("Along", words(axes), along, (value) => { along = value; show(); }));
    document.getElementById("shift").hidden = false;

    /** Values of all seeds of a run at one value of the axis, all else as in training. */
    function values(run, at) {
      const { values: known } = run.axes.find((each) => each.name === along);
      const cell = flat(run.axes, { ...run.task.at, [along]: known.indexOf(at) });
      return run.values[run.model][metric].v.map((list) => number(list[cell])).filter(Number.isFinite);
    }

    function show() {
      const axis = axes.find((each) => each.name === along);
      const x = [...new Set(runs.flatMap((run) => run.axes.find((each) => each.name === along).values))].sort((a, b) => a - b);
      const lines = runs.map((run) => {
        const known = run.axes.find((each) => each.name === along).values;
        const all = x.map((at) => (known.includes(at) ? values(run, at) : []));
        const of = (fold) => all.map((list) => (list.length ? fold(list) : null));
        return { label: run.label, color: run.hue, gaps: true, y: of((list) => list.reduce((a, b) => a + b) / list.length),
          low: of((list) => Math.min(...list)), high: of((list) => Math.max(...list)) };
      });
      const logY = first.log && lines.flatMap((line) => line.y).every((v) => v === null || v > 0);
      const label = metrics.find((each) => each.name === metric).label;
      chart(document.getElementById("curve"), { title: label, x, lines, xLabel: axis.label, yLabel: label, logY, logX: wide(x) });
    }
    show();
  }

  function training(runs) {
    document.getElementById("training").hidden = false;
    const points = runs.map((run) => new Map(run.steps[0].map((step, i) => [step, number(Object.values(run.history)[0].loss[i])])));
    const x = [...new Set(points.flatMap((each) => [...each.keys()]))].sort((a, b) => a - b);
    const lines = runs.map((run, i) => ({ label: run.label, color: run.hue, gaps: true, width: 1.4, y: x.map((step) => points[i].get(step) ?? null) }));
    const positive = lines.every((line) => line.y.every((v) => v === null || v > 0));
    chart(document.getElementById("losses"), { title: "training loss", x, lines, xLabel: "step", yLabel: "training loss", logY: positive });
  }
})();
