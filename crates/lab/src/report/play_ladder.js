// Figure 7, played: the ladder on a logarithmic or a linear scale, and any two of its steps held together.
//
// The drawing is the stage: bars, what is written beside them and the gridlines stand in it in order.

const readableNs = (ns) => {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }
  return `${Number(ns.toPrecision(3))} ns`;
};

function playLadder(figure) {
  const { names, ns } = JSON.parse(figure.dataset.facts);
  const svg = figure.querySelector("svg");
  const [bars, costs, grid, ticks] = ["rect.disc", "text.cost", "line.grid", "text.small"].map((one) => [...svg.querySelectorAll(one)]);
  const number = (element, name) => Number(element.getAttribute(name));
  const logarithmic = {
    widths: bars.map((bar) => number(bar, "width")),
    costs: costs.map((cost) => number(cost, "x")),
    grid: grid.map((line) => number(line, "x1")),
    ticks: ticks.map((tick) => tick.textContent),
  };
  const left = number(bars[0], "x"), most = Math.max(...ns), width = Math.max(...logarithmic.widths);
  const LINES = Math.min(5, grid.length);
  const linear = {
    widths: ns.map((one) => (one / most) * width),
    costs: ns.map((one, n) => left + (one / most) * width + logarithmic.costs[n] - left - logarithmic.widths[n]),
    grid: grid.map((_, n) => (n < LINES ? left + (n / (LINES - 1)) * width : null)),
    ticks: grid.map((_, n) => readableNs((n / (LINES - 1)) * most)),
  };
  const scale = (to) => {
    bars.forEach((bar, n) => bar.setAttribute("width", to.widths[n].toFixed(1)));
    costs.forEach((cost, n) => cost.setAttribute("x", to.costs[n].toFixed(1)));
    grid.forEach((line, n) => {
      const x = to.grid[n];
      for (const one of [line, ticks[n]]) one.style.display = x === null ? "none" : "";
      if (x === null) return;
      line.setAttribute("x1", x.toFixed(1));
      line.setAttribute("x2", x.toFixed(1));
      ticks[n].setAttribute("x", x.toFixed(1));
      ticks[n].textContent = to.ticks[n];
    });
  };
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Read the ladder");
  const options = names.map((_, n) => `<option value="${n}"></option>`).join("");
  bar.innerHTML = `
    <p role="status"></p>
    <div class="controls">
      <label><input type="checkbox"> Linear scale</label>
      <label>Hold <select>${options}</select></label>
      <label>against <select>${options}</select></label>
    </div>`;
  const [far, near] = bar.querySelectorAll("select"), status = bar.querySelector("[role=status]");
  for (const one of [far, near]) [...one.options].forEach((option, n) => { option.textContent = names[n]; });
  far.value = String(ns.indexOf(most));
  const say = () => {
    const [a, b] = [ns[far.value], ns[near.value]];
    const times = Number((a / b).toPrecision(3)).toLocaleString("en");
    status.textContent = `${names[far.value]}: ${readableNs(a)}, ${times} times ${names[near.value]} (${readableNs(b)}).`;
  };
  far.addEventListener("change", say);
  near.addEventListener("change", say);
  const box = bar.querySelector("input");
  box.addEventListener("change", () => {
    scale(box.checked ? linear : logarithmic);
    figure.dataset.scale = box.checked ? "linear" : "log";
  });
  figure.querySelector(".wide").after(bar);
  say();
}

document.querySelectorAll("figure[data-play=ladder]").forEach(playLadder);
