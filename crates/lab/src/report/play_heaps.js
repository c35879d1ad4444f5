// Figures 5 and 6, played: one insertion or removal steps through both heaps, and what each touches is marked.
//
// The drawing itself is the stage: cell n, its text, the edge to its parent and the frame of page p stand in it in
// order. Without this script it stays what it was. The algorithm is that of crates/bheap/src/heap.rs, with the
// layouts of layout.rs; tests/tests/lab_page.rs compares the pages that both touch, operation by operation.

const PAGE_ITEMS = 8, INDEX_OF_ROOT = 1, KEY_MAX = 99;
const pageOf = (position) => Math.floor((position + INDEX_OF_ROOT) / PAGE_ITEMS);

/** Which nodes stand below and above a position, in the textbook's layout and in the B-heap's. */
const LAYOUTS = {
  textbook: {
    parent: (node) => Math.floor((node - 1) / 2),
    children: (node) => ({ first: 2 * node + 1, count: 2 }),
  },
  paged: {
    parent(node) {
      const index = node + INDEX_OF_ROOT, half = PAGE_ITEMS / 2;
      const page = Math.floor(index / PAGE_ITEMS), offset = index % PAGE_ITEMS;
      if (page === 0 || offset >= 4) return index - offset + Math.floor(offset / 2) - INDEX_OF_ROOT;
      if (offset >= 2) return index - 2 - INDEX_OF_ROOT;
      const bottom = page - 1;
      return Math.floor(bottom / half) * PAGE_ITEMS + half + (bottom % half) - INDEX_OF_ROOT;
    },
    children(node) {
      const index = node + INDEX_OF_ROOT, half = PAGE_ITEMS / 2;
      const page = Math.floor(index / PAGE_ITEMS), offset = index % PAGE_ITEMS;
      if (offset >= half) return { first: (page * half + offset - half + 1) * PAGE_ITEMS - INDEX_OF_ROOT, count: 2 };
      if (page > 0 && offset < 2) return { first: index + 2 - INDEX_OF_ROOT, count: 1 };
      return { first: index + offset - INDEX_OF_ROOT, count: 2 };
    },
  },
};

/** Each function carries an operation out on `keys` and returns its steps: what is looked at, what it is like after. */
function insertion(layout, keys, key) {
  const steps = [], put = (said, ...touched) => steps.push({ said, touched, keys: [...keys] });
  let node = keys.length;
  keys.push(key);
  put(`${key} goes to the end`, node);
  while (node > 0) {
    const up = layout.parent(node);
    const [above, below] = [keys[up], keys[node]];
    if (above <= below) {
      put(`${above} above is not larger: done`, up, node);
      return steps;
    }
    [keys[up], keys[node]] = [below, above];
    put(`${below} changes places with ${above}`, up, node);
    node = up;
  }
  put(`${key} is at the top: done`, 0);
  return steps;
}

function removal(layout, keys) {
  const steps = [], put = (said, ...touched) => steps.push({ said, touched, keys: [...keys] });
  const smallest = keys[0], last = keys.pop();
  if (keys.length === 0) {
    put(`${smallest} was the last`, 0);
    return steps;
  }
  keys[0] = last;
  put(`${smallest} leaves; ${last} comes from the end to the top`, keys.length, 0);
  for (let node = 0; ;) {
    const { first, count } = layout.children(node);
    if (first >= keys.length) {
      put(`nothing is below ${last}: done`, node);
      return steps;
    }
    const two = count === 2 && first + 1 < keys.length;
    const least = two && keys[first + 1] < keys[first] ? first + 1 : first;
    // In the order in which the heap looks: the second child before the first.
    const touched = two ? [first + 1, first, node] : [first, node];
    if (keys[least] >= keys[node]) {
      put(`nothing below is smaller than ${last}: done`, ...touched);
      return steps;
    }
    [keys[node], keys[least]] = [keys[least], keys[node]];
    put(`${last} changes places with ${keys[node]}`, ...touched);
    node = least;
  }
}

const listed = (pages) => pages.join(", ");
const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

/** One figure: its heap, the steps of the operation under way, and the drawing. */
class Stage {
  constructor(figure, facts) {
    const svg = figure.querySelector("svg");
    this.figure = figure;
    this.layout = LAYOUTS[facts.layout];
    this.name = facts.name;
    this.cells = [...svg.querySelectorAll("rect.cell")];
    this.texts = [...svg.querySelectorAll("text.in-cell, text.on-way")];
    this.frames = [...svg.querySelectorAll("rect.page")];
    this.edges = [...svg.querySelectorAll("line.edge")];
    this.view = figure.querySelector(".wide");
    this.drawn = [...svg.querySelectorAll("[class]")].map((shape) => [shape, shape.getAttribute("class"), shape.textContent]);
    this.line = document.createElement("p");
    this.line.className = "step";
    this.view.after(this.line);
    figure.querySelector("figcaption").append(" While you step, the cells show keys.");
    this.reset(facts.keys);
  }
  /** All keys as at the beginning, and the drawing as the article has it. */
  reset(keys) {
    this.keys = [...keys];
    this.steps = [];
    this.entered = 0;
    for (const [shape, name, text] of this.drawn) {
      shape.setAttribute("class", name);
      if (shape.textContent !== text) shape.textContent = text;
    }
    delete this.figure.dataset.pages;
    delete this.figure.dataset.indices;
    this.line.hidden = true;
  }
  start(key) {
    this.steps = key === null ? removal(this.layout, this.keys) : insertion(this.layout, this.keys, key);
    this.entered += this.pages(this.steps.length - 1).length;
    this.show(0);
  }
  /** The pages touched up to a step, in the order in which they were. */
  pages(upTo) {
    return [...new Set(this.steps.slice(0, upTo + 1).flatMap((step) => step.touched.map(pageOf)))];
  }
  show(at) {
    at = Math.min(at, this.steps.length - 1);
    const step = this.steps[at], pages = this.pages(at);
    const way = new Set(this.steps.slice(0, at + 1).flatMap((one) => one.touched));
    this.cells.forEach((cell, node) => {
      const here = step.touched.includes(node);
      cell.setAttribute("class", here ? "cell way" : way.has(node) ? "cell walked" : node < step.keys.length ? "cell" : "cell empty");
      this.texts[node].setAttribute("class", here ? "on-way" : "in-cell");
      this.texts[node].textContent = step.keys[node] ?? "";
    });
    this.edges.forEach((edge, n) => {
      const both = way.has(n + 1) && way.has(this.layout.parent(n + 1));
      edge.setAttribute("class", both ? "edge way" : n + 1 < step.keys.length ? "edge" : "edge empty");
    });
    this.frames.forEach((frame, page) => frame.setAttribute("class", pages.includes(page) ? "page way" : "page"));
    this.figure.dataset.pages = listed(pages);
    this.figure.dataset.indices = listed([...way].map((node) => node + INDEX_OF_ROOT));
    // Where the drawing is wider than the screen, what is touched is brought into view.
    const [cell, view] = [this.cells[step.touched[0]], this.view].map((one) => one.getBoundingClientRect());
    this.view.scrollLeft += cell.left - view.left - view.width / 2;
    this.line.hidden = false;
    this.line.textContent = `${this.name}: ${step.said}. Pages touched: ${listed(pages)}.`;
  }
}

function playHeaps(figures) {
  const facts = figures.map((figure) => JSON.parse(figure.dataset.facts));
  const room = Math.min(...figures.map((figure) => figure.querySelectorAll("rect.cell").length));
  const play = document.createElement("div");
  play.className = "play";
  figures[0].before(play);
  play.append(...figures);
  const stages = figures.map((figure, n) => new Stage(figure, facts[n]));
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Step through both heaps");
  bar.innerHTML = `
    <p role="status"></p>
    <div class="controls">
      <label>Key <input type="number" min="0" max="${KEY_MAX}" value="5" inputmode="numeric"></label>
      <button type="button" data-do="insert">Insert</button>
      <button type="button" data-do="remove">Remove smallest</button>
      <button type="button" data-do="back">Back</button>
      <button type="button" data-do="step">Step</button>
      <button type="button" data-do="finish">To the end</button>
      <button type="button" data-do="again">Start again</button>
    </div>`;
  play.append(bar);
  const input = bar.querySelector("input"), status = bar.querySelector("[role=status]");
  const button = Object.fromEntries([...bar.querySelectorAll("button")].map((one) => [one.dataset.do, one]));
  let at = 0, operations = 0, running = "";
  const last = () => Math.max(1, ...stages.map((stage) => stage.steps.length)) - 1;
  const show = (said) => {
    if (operations > 0) for (const stage of stages) stage.show(at);
    // Not `disabled`: a button that had the focus would lose it.
    button.step.setAttribute("aria-disabled", String(at >= last()));
    button.finish.setAttribute("aria-disabled", String(at >= last()));
    button.back.setAttribute("aria-disabled", String(at === 0));
    if (operations === 0) said ??= `Both hold the same ${stages[0].keys.length} keys. Insert one, or remove the smallest, and step.`;
    if (said) return status.replaceChildren(said);
    const each = stages.map((stage) => `${stage.name} ${counted(stage.pages(at).length, "page")}`).join(", ");
    const mean = stages.map((stage) => (stage.entered / operations).toFixed(1)).join(" and ");
    status.textContent = `${running}, step ${at + 1} of ${last() + 1}: ${each}.`
      + (at < last() ? "" : ` Mean of ${counted(operations, "operation")}: ${mean} pages.`);
  };
  const begin = (key) => {
    const size = stages[0].keys.length;
    if (key !== null && size >= room) return show(`There is room for ${room} items: remove one first.`);
    if (key === null && size === 0) return show("Both are empty: insert a key first.");
    running = key === null ? `Removing ${stages[0].keys[0]}` : `Inserting ${key}`;
    operations += 1;
    at = 0;
    for (const stage of stages) stage.start(key);
    show();
  };
  const actions = {
    insert() {
      const key = input.valueAsNumber;
      if (!Number.isInteger(key) || key < 0 || key > KEY_MAX) return show(`A key is a whole number from 0 to ${KEY_MAX}.`);
      begin(key);
    },
    remove: () => begin(null),
    back() { if (at > 0) { at -= 1; show(); } },
    step() { if (at < last()) { at += 1; show(); } },
    finish() { at = last(); show(); },
    again() {
      at = 0;
      operations = 0;
      stages.forEach((stage, n) => stage.reset(facts[n].keys));
      show();
    },
  };
  for (const one of bar.querySelectorAll("button")) one.addEventListener("click", () => actions[one.dataset.do]());
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") actions.insert(); });
  bar.addEventListener("keydown", (event) => {
    if (event.target === input) return;
    if (event.key === "ArrowRight") actions.step();
    else if (event.key === "ArrowLeft") actions.back();
    else return;
    event.preventDefault();
  });
  show();
}

const heapFigures = [...document.querySelectorAll("figure[data-play=heap]")];
if (heapFigures.length) playHeaps(heapFigures);
