// A site at the edge: its page by HTTP/2 under TLS, its chat by WebSocket, its trains as events.
//
// SITE says where it is, SHOTS where screenshots go, CHROMIUM which browser.
"use strict";

const assert = require("node:assert/strict");
const path = require("node:path");
const { run } = require("./harness.cjs");

const { SITE: site, SHOTS: shots } = process.env;
const PATIENCE_MS = 60_000;

run(async (browser) => {
  // The certificate is the test's own.
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 800, height: 500 } });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("pageerror", (error) => assert.fail(`the page's script failed: ${error}`));
  await page.goto(site);
  const protocol = await page.evaluate(() => performance.getEntriesByType("navigation")[0].nextHopProtocol);
  assert.equal(protocol, "h2");
  console.log("ok the page came by HTTP/2");

  const shows = (list, text) => page.waitForSelector(`${list} li:text-is("${text}")`);
  await shows("ul", "open");
  for (const [number, text] of ["good evening", "\u{1f682} leaves"].entries()) {
    // The train comes when somebody has spoken, so it is not there yet.
    assert.equal(await page.locator("ol li").count(), number);
    await page.fill("input", text);
    await page.click("button");
    await shows("ul", `heard ${text}`);
    await shows("ol", `train ${number}`);
  }
  console.log("ok the chat answers");
  console.log("ok events come one by one");
  await page.screenshot({ path: path.join(shots, "chat.png") });
});
