"use strict";
// Runs in work, asked for every few seconds.
(() => {
  const { make, chart, plain } = site;
  const EVERY = 3000, box = document.getElementById("live"), cards = new Map();
  let built = null;

  function time(seconds) {
    if (seconds === null) return "";
    if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} days`;
  }

  function card(run) {
    if (!cards.has(run.key)) {
      const made = { whole: make("section", { className: "work" }), head: make("h3"), said: make("p", { className: "soft" }), bar: make("progress", { max: 1, value: 0 }), curve: make("div") };
      made.whole.append(made.head, made.bar, made.said, made.curve);
      made.bar.setAttribute("aria-label", "done");
      cards.set(run.key, made);
    }
    const held = cards.get(run.key);
    held.head.textContent = `${run.name} on ${run.task}, ${run.preset}, seed ${run.seed}`;
    held.bar.value = run.total ? run.done / run.total : 0;
    const parts = [`${run.stage}: ${run.done.toLocaleString("en")} of ${run.total.toLocaleString("en")} ${run.unit}`];
    if (run.left !== null) parts.push(`about ${time(run.left)} left`);
    if (run.loss !== null) parts.push(`loss ${plain(run.loss)}`);
    if (run.device) parts.push(run.device);
    if (run.process) parts.push(`process ${run.process}`);
    parts.push(run.state);
    held.said.textContent = parts.join(" · ");
    const drawn = JSON.stringify(run.curve.length && run.curve[run.curve.length - 1]);
    if (run.curve.length > 1 && held.drawn !== drawn) {
      held.drawn = drawn;
      const x = run.curve.map(([step]) => step), y = run.curve.map(([, loss]) => loss);
      chart(held.curve, { title: "training loss", x, xLabel: "step", yLabel: "training loss", logY: y.every((v) => v > 0), lines: [{ label: "loss", y, color: run.color, width: 1.8 }], table: false });
    }
    return held.whole;
  }

  async function ask() {
    try {
      const answer = await fetch("live.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(`the server says ${answer.status}`);
      const told = await answer.json();
      if (built !== null && built !== told.built) document.dispatchEvent(new Event("rebuilt"));
      built = told.built;
      const now = told.runs.map(card);
      for (const [key, held] of cards) if (!told.runs.some((run) => run.key === key)) { held.whole.remove(); cards.delete(key); }
      now.forEach((each, i) => { if (box.children[i] !== each) box.insertBefore(each, box.children[i] || null); });
      document.getElementById("said").textContent = `${told.at}: ${told.words}`;
    } catch (error) {
      document.getElementById("said").textContent = `No answer (${error.message}). Was icl-lab site --serve stopped?`;
    }
    setTimeout(ask, EVERY);
  }
  ask();
})();
