// What a person does with the mail pages, in a real browser: on a desk and on a phone, by day and by night.
//
// MAIL_URL and MAIL_SMTP say where the service is, SHOTS where screenshots go, CHROMIUM which browser. Each step says
// itself; the first that fails ends the run with its reason.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { accessible, eachLook, run } = require("./harness.cjs");
const { send } = require("./smtp.cjs");

const base = process.env.MAIL_URL;
const shots = process.env.SHOTS;
const tricks = JSON.parse(fs.readFileSync(path.join(__dirname, "tricks.json"), "utf8"));
const PATIENCE_MS = 30_000;
const PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAE0lEQVR4nGNQCT/6/0Q4AxADWQAvQAa9O5ykhQAAAABJRU5ErkJggg==";

/** Counts what is fetched from another site. */
async function remoteSite() {
  const site = { hits: 0 };
  const server = http.createServer((request, response) => {
    site.hits += 1;
    response.setHeader("content-type", "image/gif");
    response.end(Buffer.from("R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw==", "base64"));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  site.url = `http://127.0.0.1:${server.address().port}`;
  site.close = () => server.close();
  return site;
}

/** A page on which nothing goes wrong unnoticed, and what its mails made the browser ask for. */
async function watched(browser, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("dialog", (dialog) => assert.fail(`a dialog opened: ${dialog.message()}`));
  page.on("pageerror", (error) => assert.fail(`the page's script failed: ${error}`));
  const foreign = [];
  context.on("request", (request) => {
    const url = request.url();
    // A mail's frame asks us for nothing but itself and its own pictures.
    const ofFrame = request.frame().parentFrame() !== null;
    const own = url.startsWith(base) && (!ofFrame || /\/(frame(\?[^/]*)?|attachments\/\d+\/[^/]*)$/.test(url));
    if (!own && !url.startsWith("data:") && url !== "about:blank") foreign.push(url);
  });
  return { context, page, foreign };
}

/** Nothing scrolls within what scrolls, and nothing sticks out to the side. */
async function scrollsWell(page, where) {
  const nested = await page.evaluate(() => {
    const scrolls = (element) => {
      const style = getComputedStyle(element);
      const by = (overflow, is, has) => /auto|scroll/.test(overflow) && is > has + 1;
      return by(style.overflowY, element.scrollHeight, element.clientHeight) || by(style.overflowX, element.scrollWidth, element.clientWidth);
    };
    const root = document.scrollingElement;
    const pageScrolls = root.scrollHeight > root.clientHeight + 1 && getComputedStyle(document.body).overflowY !== "hidden";
    const within = [...document.querySelectorAll("body *")].filter(scrolls);
    const name = (element) => `${element.tagName.toLowerCase()}.${element.className}`;
    const found = within.filter((one) => pageScrolls || within.some((other) => other !== one && other.contains(one))).map(name);
    for (const frame of document.querySelectorAll("iframe")) {
      const inside = frame.contentDocument?.scrollingElement;
      if (inside && inside.scrollHeight > inside.clientHeight + 1) found.push(`iframe: ${inside.scrollHeight} in ${inside.clientHeight}`);
    }
    if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} wide`);
    return found;
  });
  assert.deepEqual(nested, [], where);
}

/** What the page looked like when a step failed is in SHOTS. */
async function visit(browser, name, options) {
  const watching = await watched(browser, options);
  try {
    await steps(browser, name, watching);
  } catch (error) {
    await watching.page.screenshot({ path: path.join(shots, `${name}-failed.png`) });
    throw error;
  }
}

async function steps(browser, name, { context, page, foreign }) {
  const isPhone = name.startsWith("phone");
  let step = 0;
  const look = async (what) => {
    step += 1;
    await page.screenshot({ path: path.join(shots, `${name}-${step}-${what.replaceAll(" ", "-")}.png`) });
    await accessible(page, `${what} (${name})`);
    await scrollsWell(page, `${what} (${name})`);
    console.log(`ok ${name}: ${what}`);
  };
  const inbox = `${name}@night.test`;
  const remote = await remoteSite();
  const back = () => page.keyboard.press("u");

  await page.goto(base);
  assert.ok(await page.isVisible("a >> text=All mail"), "this machine may see all mail");
  await look("home");
  await page.fill("#address", ` ${name.toUpperCase()}+tag@Night.test `);
  await page.press("#address", "Enter");
  await page.waitForURL(`${base}/inbox/${inbox}`);
  await page.waitForSelector("#live[data-state=on]");
  assert.ok(await page.isVisible("text=Nothing has arrived yet"));
  assert.match(await page.textContent(".pane .warning"), /Anyone on this machine/);
  await look("empty inbox");

  await send(inbox, `From: Ann Lee <ann@friends.test>\nTo: ${inbox}\nSubject: Meet me at nine\n\nPlatform 7.\nhttps://night.test/platform\n`);
  await page.waitForSelector(".row >> text=Meet me at nine");
  assert.match(await page.textContent("#news"), /New mail from Ann Lee: Meet me at nine/);
  assert.ok(await page.isHidden("#empty"));
  await look("inbox with one mail");
  await send(inbox, [
    `From: Shop <news@shop.test>`, `To: ${inbox}`, `Subject: Winter sale`, `MIME-Version: 1.0`,
    `Content-Type: multipart/mixed; boundary=m`, ``, `--m`, `Content-Type: text/html; charset=utf-8`, ``,
    `<style>h1{color:rgb(154,103,0);background:url(${remote.url}/sheet.gif)}h1:hover{background:url(${remote.url}/hover.gif)}@media(max-width:500px){h1{color:rgb(26,127,75)}}</style>`,
    `<h1>Sale</h1><p>All berths <a href="${remote.url}/go">here</a></p><img src="${remote.url}/open.gif" alt="Picture" width="200" height="80">`,
    `<div style="background:url(${remote.url}/style.gif)">x</div><img src="cid:p@x" width="64" height="64" alt="Own">`,
    `<p style="height:1800px">Far</p><p id="end">end</p>`, ``,
    `--m`, `Content-Type: image/png; name="car.png"`, `Content-ID: <p@x>`, `Content-Transfer-Encoding: base64`, ``, PICTURE, ``,
    `--m`, `Content-Type: application/pdf; name="ticket.pdf"`, `Content-Disposition: attachment`, `Content-Transfer-Encoding: base64`, ``, `JVBERg==`, `--m--`, ``,
  ].join("\n"));
  await page.waitForSelector(".row >> text=Winter sale");
  assert.equal(await page.locator(".row").count(), 2);
  assert.match(await page.title(), /^\(2\) /, "unread are counted in the title");
  assert.match(await page.textContent("#delete-all summary"), /Delete all 2 mails/);

  await page.keyboard.press("j");
  await page.keyboard.press("o");
  await page.waitForSelector(".mail h1 >> text=Winter sale");
  const frame = page.frameLocator("iframe.frame");
  await frame.locator("h1 >> text=Sale").waitFor();
  assert.equal(await page.isVisible("#list"), !isPhone, "on a desk the list stays beside the mail");
  assert.match(await page.textContent(".blocked"), /3 remote items from 127\.0\.0\.1:\d+ blocked/);
  assert.equal(remote.hits, 0, "nothing is fetched before the reader asks");
  await page.waitForFunction(() => document.querySelector("iframe.frame").clientHeight > 1800);
  const colour = await frame.locator("h1").evaluate((h1) => getComputedStyle(h1).color);
  assert.equal(colour, isPhone ? "rgb(26, 127, 75)" : "rgb(154, 103, 0)", "the mail's own style holds");
  const own = frame.locator("img[alt=Own]");
  assert.ok(await own.evaluate((image) => image.complete && image.naturalWidth === 2), "a picture of the mail is in place");
  if (isPhone) {
    const top = await page.locator("iframe.frame").evaluate((it) => it.getBoundingClientRect().top);
    assert.ok(top < 780 - 200, `the mail's first lines are on the first screen: it begins at ${top}`);
    const tabs = await page.locator(".tabs a").evaluateAll((all) => all.map((tab) => tab.getBoundingClientRect()).filter((box) => box.left < 0 || box.right > innerWidth).length);
    assert.equal(tabs, 0, "no tab is cut");
  }
  await look("message with remote content blocked");
  await page.click(".blocked a");
  await page.waitForURL(/remote=load/);
  await page.waitForSelector("text=loaded at your request");
  await frame.locator("img[alt=Picture]").evaluate((image) => image.complete || new Promise((done) => (image.onload = image.onerror = done)));
  await page.waitForFunction(() => document.querySelector("iframe.frame").contentDocument.readyState === "complete");
  await frame.locator("h1").hover();
  assert.equal(remote.hits, 3, "the picture, what its style names, and what the style sheet names; nothing for a pointer that hovers");
  if (!isPhone) {
    await page.click(".looks >> text=Phone");
    await page.waitForFunction(() => document.querySelector("iframe.frame").contentWindow.innerWidth === 375);
    await look("message as on a phone");
    await page.click(".looks >> text=Desk");
  }
  await page.click(".looks >> text=Dark");
  await page.waitForURL(/dark=1/);
  await frame.locator("h1 >> text=Sale").waitFor();
  await look("message in the dark");
  for (const tab of ["Text", "Headers", "Source", "Attachments"]) {
    await page.click(`.tabs >> text=${tab}`);
    await page.waitForSelector(`.tabs [aria-current=page] >> text=${tab}`);
    await look(`message ${tab.toLowerCase()}`);
  }
  assert.ok(await page.locator(".thumbnail").evaluate((image) => image.complete && image.naturalWidth === 2), "a small picture");
  assert.match(await page.textContent(".attachments"), /PDF.*ticket\.pdf/s);

  await back();
  await page.waitForURL(`${base}/inbox/${inbox}`);
  assert.ok(await page.locator(".row.read >> text=Winter sale").count(), "what was opened is no longer bold");
  await page.keyboard.press("?");
  assert.ok(await page.isVisible("#help"));
  await look("keys");
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  await page.keyboard.type("platform from:ann");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=1 mail found among 2");
  await look("search");
  await page.click(".row >> text=Meet me at nine");
  await page.waitForSelector(".mail h1 >> text=Meet me at nine");
  assert.ok(await page.isVisible(".mail a >> text=https://night.test/platform"));
  await look("message of text");

  // Deleted, and brought back.
  await page.keyboard.press("d");
  await page.waitForSelector("#toast >> text=1 mail deleted");
  assert.equal(await page.locator(".row >> text=Meet me at nine").count(), 0);
  await page.screenshot({ path: path.join(shots, `${name}-deleted.png`) });
  await page.keyboard.press("z");
  await page.waitForSelector("#toast >> text=Brought back");
  await page.goto(`${base}/inbox/${inbox}`);
  assert.equal(await page.locator(".row").count(), 2);

  // Many: selected, marked, deleted for good.
  for (let n = 0; n < 30; n++) {
    const subject = n === 7 ? `A subject that goes on and on, ${"and on, ".repeat(40)}to its end` : `Mail ${n}`;
    await send(inbox, `From: ${n % 3 ? `Sender ${n}` : `A sender whose name is longer than any list is wide ${n}`} <s${n}@x.test>\nSubject: ${subject}\n\nText ${n}\n`);
  }
  await page.waitForSelector(".row >> text=Mail 29");
  await page.reload();
  await look("inbox of many");
  await page.locator(".row .pick input").nth(1).click();
  await page.locator(".row .pick input").nth(4).click({ modifiers: ["Shift"] });
  assert.match(await page.textContent("#picked"), /4 selected/);
  await look("some selected");
  await page.click(".picks-bar >> text=Read");
  await page.waitForFunction(() => document.querySelectorAll(".row.read").length >= 4);
  await page.click(".picks-bar >> text=Delete");
  await page.waitForSelector("#toast >> text=4 mails deleted");
  assert.equal(await page.locator(".row").count(), 28);
  await page.reload();
  assert.equal(await page.locator(".row").count(), 28, "the server does not show them either");

  // The border is moved, by hand and by keys, and stays.
  if (!isPhone) {
    await page.focus("#border");
    const before = await page.locator("#list").evaluate((it) => it.clientWidth);
    await page.keyboard.press("ArrowRight");
    const box = await page.locator("#border").boundingBox();
    await page.mouse.move(box.x + 4, 400);
    await page.mouse.down();
    await page.mouse.move(560, 400);
    await page.mouse.up();
    await page.reload();
    const after = await page.locator("#list").evaluate((it) => it.getBoundingClientRect().width);
    assert.ok(Math.abs(after - 560) < 3 && before < 500, `${before} to ${after}`);
  }

  // Next and previous, and what is deleted elsewhere meanwhile.
  const subjects = await page.locator(".row .subject bdi").allTextContents();
  const [here, below] = [subjects[5], subjects[6]];
  await page.click(`.row >> text="${here}"`);
  await page.waitForSelector(`.mail h1 >> text="${here}"`);
  await page.click("[data-step='1']");
  await page.waitForSelector(`.mail h1 >> text="${below}"`);
  await page.click("[data-step='-1']");
  await page.waitForSelector(`.mail h1 >> text="${here}"`);
  await page.goBack();
  await page.waitForSelector(`.mail h1 >> text="${below}"`);
  await back();

  const nasty = tricks.map((trick) => `<div>${trick}</div>`).join("\n");
  await send(inbox, `From: <script>alert(1)</script>\nSubject: <img src=x onerror=alert(1)>\nContent-Type: text/html; charset=utf-8\n\n${nasty}\n`);
  await page.waitForSelector(".row >> text=<img src=x onerror=alert(1)>");
  const before = foreign.length;
  await page.click(".row >> text=<img src=x");
  await frame.locator("body").waitFor({ state: "attached" });
  await look("hostile mail");
  for (const tab of ["Text", "Headers", "Source", "HTML"]) {
    await page.click(`.tabs >> text=${tab}`);
    await page.waitForSelector(`.tabs [aria-current=page] >> text=${tab}`);
  }
  await frame.locator("body").waitFor({ state: "attached" });
  assert.deepEqual(foreign.slice(before), [], "a hostile mail fetches nothing");
  // Each alone too: one may hide another.
  for (const [n, trick] of tricks.entries()) {
    if (name !== "desktop-dark") break;
    await send(`trick${n}@night.test`, `Subject: trick ${n}\nContent-Type: text/html; charset=utf-8\n\n${trick}\n`);
    await page.goto(`${base}/inbox/trick${n}@night.test`);
    await page.click(".row a");
    await page.waitForSelector("iframe.frame");
    await frame.locator("body").waitFor({ state: "attached" });
    const where = page.frames().map((it) => it.url()).filter((url) => url !== "" && !url.startsWith(`${base}/inbox/trick${n}@`));
    assert.deepEqual(where, [], `trick ${n} went elsewhere`);
  }
  assert.deepEqual(foreign.slice(before), [], "no trick fetches anything");
  console.log(`ok ${name}: no script of a mail runs, nothing is fetched`);

  await page.goto(`${base}/inbox/*@*`);
  assert.match(await page.textContent(".pane .warning"), /on this machine alone/);
  await look("all mail");
  await page.click(".row >> nth=0");
  await page.waitForSelector(".mail h1");
  assert.equal(await page.isVisible("#list"), !isPhone);
  await page.goto(`${base}/about`);
  await look("about");
  await page.goto(`${base}/api`);
  await look("api");
  await page.goto(`${base}/terms`);
  await look("terms");
  await page.goto(`${base}/inbox/a%20b`);
  assert.ok(await page.isVisible("text=Invalid address"));
  await look("error");
  await page.click("#theme");
  await page.reload();
  assert.ok(await page.evaluate(() => document.documentElement.dataset.theme), "the theme is remembered");
  await accessible(page, `the other theme (${name})`);
  remote.close();
  await context.close();
}

async function withoutScripts(browser) {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  try {
    await plainly(page);
  } catch (error) {
    await page.screenshot({ path: path.join(shots, "without-scripts-failed.png") });
    throw error;
  }
  await context.close();
}

async function plainly(page) {
  await page.goto(base);
  await page.fill("#address", "plain@night.test");
  await page.click("text=Open");
  assert.ok(await page.isVisible("text=Nothing has arrived yet"));
  for (const n of [1, 2, 3]) await send("plain@night.test", `From: a@b.test\nSubject: no scripts ${n}\n\nhello ${n}\n`);
  await page.reload();
  assert.equal(await page.locator(".row:not(.read)").count(), 3);
  const [first, second] = (await page.locator(".row .subject bdi").allTextContents()).map((subject) => subject.slice(-1));
  await page.click(`.row a >> text=no scripts ${first}`);
  assert.ok(await page.isVisible(`text=hello ${first}`));
  await page.click("[data-step='1']");
  assert.ok(await page.isVisible(`text=hello ${second}`));
  await page.click(".tools [title^='Delete']");
  assert.ok(await page.isVisible("text=1 mail deleted."));
  assert.equal(await page.locator(".row").count(), 2);
  await page.click("text=Undo");
  assert.equal(await page.locator(".row").count(), 3);
  await page.locator(".row .pick input").nth(0).check();
  await page.locator(".row .pick input").nth(1).check();
  await page.click(".picks-bar >> text=Unread");
  assert.equal(await page.locator(".row:not(.read)").count(), 3);
  await page.locator(".row .pick input").nth(2).check();
  await page.click(".picks-bar >> text=Delete");
  assert.equal(await page.locator(".row").count(), 2);
  await page.fill("#q", "subject:scripts");
  await page.press("#q", "Enter");
  assert.ok(await page.isVisible("text=2 mails found"));
  await page.click("[data-up]");
  await page.click("summary >> text=Delete all 2 mails");
  await page.click("text=Delete them");
  assert.ok(await page.isVisible("text=Nothing has arrived yet"));
  console.log("ok without scripts: open, next, read, mark, search, delete, undo, delete all");
}

run(async (browser) => {
  await eachLook(800, (name, options) => visit(browser, name, options));
  await withoutScripts(browser);
});
