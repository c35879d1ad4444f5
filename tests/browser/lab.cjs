// The lab's page in a real browser: read on a desk, on a phone and on paper, by day and by night, and played with.
//
// PAGE and JSON are what one run of `nighttrain lab` wrote; SHOTS is where screenshots go, CHROMIUM which browser. Each
// step says itself; the first that fails ends the run with its reason.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { pathToFileURL } = require("node:url");
const { accessible, eachLook, run } = require("./harness.cjs");

const address = pathToFileURL(process.env.PAGE).href;
const found = JSON.parse(fs.readFileSync(process.env.JSON, "utf8"));
const shots = process.env.SHOTS;
const PATIENCE_MS = 30_000;
const HEAPS = "figure[data-play=heap]";

const experiment = (name) => found.experiments.find((one) => one.name === name);

async function opened(browser, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("pageerror", (error) => assert.fail(`the page's script failed: ${error}`));
  context.on("request", (request) => assert.equal(request.url(), address, "the page stands alone"));
  await page.goto(address);
  return { context, page };
}

/** Presses buttons within the page, one after the other: a browser that is asked from outside draws for each. */
const press = (page, ...buttons) =>
  page.evaluate((all) => all.forEach((button) => document.querySelector(`[data-do=${button}]`).click()), buttons);

/** Every operation of the record, by the buttons: the figures touch what the crate's own heaps touched. */
async function agreesWithTheHeaps(page) {
  const { keys, walks } = experiment("bheap-layout").data.walked;
  assert.equal(await page.$eval(HEAPS, (figure) => JSON.parse(figure.dataset.facts).keys.join()), keys.join());
  const isRemoval = (walk) => walk.insert === undefined || walk.insert === null;
  const all = await page.evaluate(({ operations, heaps }) => operations.map((key) => {
    const press = (button) => document.querySelector(`[data-do=${button}]`).click();
    const field = document.querySelector(".play input");
    if (key === null) {
      press("remove");
    } else {
      field.value = String(key);
      field.dispatchEvent(new Event("input", { bubbles: true }));
      press("insert");
    }
    press("finish");
    return [...document.querySelectorAll(heaps)].map(({ dataset }) => {
      const [indices, pages] = [dataset.indices, dataset.pages].map((list) => list.split(", ").map(Number));
      return { indices, pages };
    });
  }), { operations: walks.map((walk) => (isRemoval(walk) ? null : walk.insert)), heaps: HEAPS });
  for (const [n, walk] of walks.entries()) {
    assert.deepEqual(all[n], [walk.textbook, walk.paged], `operation ${n}: ${JSON.stringify(walk)}`);
  }
  // Not an empty comparison: there were both kinds, and the heaps differed.
  assert.ok(walks.some((walk) => walk.insert === null) && walks.some((walk) => walk.insert !== null));
  assert.ok(walks.some((walk) => walk.textbook.pages.length > walk.paged.pages.length));
  await page.click("[data-do=again]");
  console.log(`ok ${walks.length} operations touch what the heaps touch`);
}

/** With the keyboard alone: to the field, a key, steps there and back. */
async function byKeyboard(page) {
  await page.focus(".play input");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("5");
  await page.keyboard.press("Enter");
  const status = () => page.textContent(".play [role=status]");
  assert.match(await status(), /^Inserting 5, step 1 of 7: Textbook heap 1 page, B-heap 1 page\.$/);
  for (let n = 0; n < 4; n += 1) await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.dataset.do), "step");
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowLeft");
  assert.match(await status(), /step 3 of 7: Textbook heap 3 pages, B-heap 1 page/);
  assert.equal(await page.locator(`${HEAPS} rect.cell.way`).count(), 4, "two nodes are held together in each heap");
  await page.focus(".play input");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("5.5");
  await page.keyboard.press("Enter");
  assert.match(await status(), /A key is a whole number from 0 to 99/);
  console.log("ok by keyboard");
}

async function fullAndEmpty(page) {
  const status = () => page.textContent(".play [role=status]");
  await page.click("[data-do=again]");
  await page.fill(".play input", "7");
  await press(page, ...Array(4).fill("insert"));
  assert.match(await status(), /There is room for 31 items/);
  await press(page, ...Array(32).fill("remove"));
  assert.match(await status(), /Both are empty/);
  await page.click("[data-do=again]");
  assert.match(await status(), /Both hold the same 28 keys/);
  assert.equal(await page.locator(`${HEAPS} text.on-way`).count(), 5 + 6, "the article's drawings are there again");
  console.log("ok full and empty heaps say so");
}

async function ladder(page) {
  const figure = page.locator("figure[data-play=ladder]");
  const rungs = experiment("memory-ladder").data.rungs;
  const widths = () => figure.locator("rect.disc").evaluateAll((bars) => bars.map((bar) => bar.width.baseVal.value));
  const logarithmic = await widths();
  assert.equal(logarithmic.length, rungs.length);
  await figure.locator("input[type=checkbox]").check();
  const linear = await widths();
  const most = Math.max(...rungs.map((rung) => rung.ns)), longest = Math.max(...linear);
  rungs.forEach((rung, n) => {
    assert.ok(Math.abs(linear[n] / longest - rung.ns / most) < 0.01, `${rung.name} is as long as its time`);
  });
  await figure.locator("input[type=checkbox]").uncheck();
  assert.deepEqual((await widths()).map(Math.round), logarithmic.map(Math.round), "and back");
  await figure.locator("select").first().selectOption({ label: rungs[1].name });
  const said = await figure.locator("[role=status]").textContent();
  assert.ok(said.startsWith(`${rungs[1].name}: `) && said.includes(`times ${rungs[0].name}`), said);
  console.log("ok the ladder");
}

async function visit(browser, name, options) {
  const { context, page } = await opened(browser, options);
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(await wide(), 0, `nothing sticks out to the side (${name})`);
  await accessible(page, name);
  await page.screenshot({ path: path.join(shots, `${name}.png`), fullPage: true });
  await page.fill(".play input", "5");
  await page.click("[data-do=insert]");
  await page.click("[data-do=step]");
  await page.click("[data-do=step]");
  await page.screenshot({ path: path.join(shots, `${name}-stepping.png`) });
  await accessible(page, `${name}, stepping`);
  await page.click("#theme");
  const chosen = options.colorScheme === "dark" ? "day" : "night";
  const remembered = async () => {
    await page.reload();
    return (await page.evaluate(() => document.documentElement.dataset.theme)) === chosen;
  };
  // A page of a file may be loaded again by another process of the browser, which hears of what was kept when the first has
  // the time to tell: on a busy machine, not at once.
  let isRemembered = await remembered();
  for (let again = 0; again < 20 && !isRemembered; again++) {
    await page.waitForTimeout(250);
    isRemembered = await remembered();
  }
  assert.ok(isRemembered, "the theme is remembered");
  await accessible(page, `${name}, the other theme`);
  console.log(`ok ${name}`);
  await context.close();
}

async function onPaper(browser) {
  const { context, page } = await opened(browser, { viewport: { width: 800, height: 1100 }, colorScheme: "dark" });
  await page.emulateMedia({ media: "print" });
  assert.ok(await page.isHidden("#theme") && await page.isHidden(".play .bar"), "nothing to press on paper");
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
  const cut = await page.$$eval("figure svg", (all) => all.filter((svg) => svg.getBoundingClientRect().right > innerWidth).length);
  assert.equal(cut, 0, "no drawing is cut off");
  await page.screenshot({ path: path.join(shots, "paper.png"), fullPage: true });
  console.log("ok on paper");
  await context.close();
}

async function withoutScripts(browser) {
  const { context, page } = await opened(browser, { javaScriptEnabled: false, viewport: { width: 1200, height: 800 } });
  const all = await page.locator(HEAPS).count();
  assert.equal(all, 2, "both drawings are there");
  assert.equal(await page.locator(".bar").count(), 0);
  assert.ok(await page.isHidden("#theme"));
  const cells = await page.locator(`${HEAPS} text.in-cell, ${HEAPS} text.on-way`).count();
  assert.equal(cells, 31 + 39, "with the article's indices in their cells");
  console.log("ok without scripts");
  await context.close();
}

run(async (browser) => {
  await eachLook(900, (name, options) => visit(browser, name, options));
  const { context, page } = await opened(browser, { viewport: { width: 1200, height: 900 } });
  await agreesWithTheHeaps(page);
  await byKeyboard(page);
  await fullAndEmpty(page);
  await ladder(page);
  await context.close();
  await onPaper(browser);
  await withoutScripts(browser);
});
