// What the scripts of this folder have in common: a browser that is closed again, and the looks that a page must stand.
//
// SHOTS says where screenshots go, CHROMIUM which browser. The first step that fails ends the run with its reason.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const axe = require("axe-core");
const { chromium } = require("playwright-core");

const { SHOTS: shots, CHROMIUM: executablePath } = process.env;

/** On a desk and on a phone, by day and by night: the name of each look, and what makes a context have it. */
function looks(deskHeight) {
  const sizes = { desktop: { width: 1200, height: deskHeight }, phone: { width: 390, height: 780 } };
  return Object.entries(sizes).flatMap(([size, viewport]) =>
    ["dark", "light"].map((colorScheme) => [`${size}-${colorScheme}`, { viewport, colorScheme, reducedMotion: "reduce" }]));
}

/** No violation that axe knows of; what strangers wrote, in a frame, is theirs. */
async function accessible(page, where) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run(document, { iframes: false }));
  const told = violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.target.join(" ")).join(", ")}`);
  assert.deepEqual(told, [], `accessibility of ${where}`);
}

/** Visits with each look, two at a time: a browser draws each page in a process of its own. */
async function eachLook(deskHeight, visit) {
  const left = looks(deskHeight);
  const visitor = async () => {
    for (let look = left.shift(); look; look = left.shift()) await visit(...look);
  };
  await Promise.all([visitor(), visitor()]);
}

/** Runs `work` with a browser; whatever it throws is the run's reason to fail. */
async function run(work) {
  fs.mkdirSync(shots, { recursive: true });
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    await work(browser);
  } finally {
    await browser.close();
  }
}

module.exports = {
  accessible,
  eachLook,
  run: (work) => run(work).catch((error) => {
    console.error(error);
    process.exit(1);
  }),
};
