// Mails as they were sent: public templates, in the frame of our page and alone in a bare page, compared picture by
// picture at three widths. Neither side has a network: what differs may only be scripts, forms, loads and animation.
//
// MAIL_URL and MAIL_SMTP say where the service is, SHOTS where pictures of what differs go, CHROMIUM which browser.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { run } = require("./harness.cjs");
const { send } = require("./smtp.cjs");
const { templates } = require("./templates/all.cjs");

const base = process.env.MAIL_URL;
const shots = process.env.SHOTS;
const WIDTHS = { phone: 375, tablet: 768, desk: 1200 };
const TEMPLATES_MIN = 40;
/** Of all pixels. */
const DIFFERENT_MAX = 0.01;
/** Of one colour, of 255: what two drawings of the same letters may differ by. */
const SAME_COLOUR = 8;
const HEIGHT_MAX_PX = 6000;

/** Which part of the pixels differs; what one picture has below the other's end differs. */
async function different(page, one, other) {
  return page.evaluate(
    async ([one, other, same]) => {
      const read = async (url) => {
        const bitmap = await createImageBitmap(await (await fetch(url)).blob());
        const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
        const context = canvas.getContext("2d");
        context.drawImage(bitmap, 0, 0);
        return context.getImageData(0, 0, bitmap.width, bitmap.height);
      };
      const [a, b] = [await read(one), await read(other)];
      const [width, height] = [Math.max(a.width, b.width), Math.max(a.height, b.height)];
      let differing = width * height - Math.min(a.width, b.width) * Math.min(a.height, b.height);
      for (let y = 0; y < Math.min(a.height, b.height); y++) {
        for (let x = 0; x < Math.min(a.width, b.width); x++) {
          const [i, j] = [(y * a.width + x) * 4, (y * b.width + x) * 4];
          if ([0, 1, 2].some((c) => Math.abs(a.data[i + c] - b.data[j + c]) > same)) differing++;
        }
      }
      return differing / (width * height);
    },
    [one, other, SAME_COLOUR].map((of) => (Buffer.isBuffer(of) ? `data:image/png;base64,${of.toString("base64")}` : of)),
  );
}

/** What is listed as different, done to the bare page: pictures that are not loaded are the boxes that ours has. */
function withoutLoads(boxes) {
  for (const gone of document.querySelectorAll("input, select, textarea, video, audio, iframe, object, embed, svg")) gone.remove();
  const images = [...document.images];
  if (images.length !== boxes.length) throw new Error(`${images.length} pictures, ${boxes.length} of them shown`);
  for (const [n, image] of images.entries()) {
    if (boxes[n] === null) continue;
    image.removeAttribute("srcset");
    image.src = boxes[n];
  }
  return Promise.all(images.filter((image) => image.src).map((image) => image.decode().catch(() => {})));
}

run(async (browser) => {
  const all = await templates();
  assert.ok(all.length >= TEMPLATES_MIN, `${all.length} templates`);
  const options = { colorScheme: "light", reducedMotion: "reduce", deviceScaleFactor: 1 };
  const bare = await browser.newContext({ ...options, javaScriptEnabled: true, bypassCSP: true });
  await bare.route("**", (route) => (route.request().url().startsWith("data:") ? route.continue() : route.abort()));
  const page = await bare.newPage();
  const judge = await (await browser.newContext(options)).newPage();
  const ours = await browser.newContext(options);
  const foreign = [];
  ours.on("request", (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith("data:")) foreign.push(request.url());
  });
  const frame = await ours.newPage();
  let [worst, worstName] = [0, ""];
  const over = [];
  for (const [n, { name, html }] of all.entries()) {
    const inbox = `template${n}@night.test`;
    const head = `From: a@b.test\nSubject: ${name}\nMIME-Version: 1.0\nContent-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: base64\n\n`;
    await send(inbox, head + Buffer.from(html).toString("base64").replace(/.{76}/g, "$&\n") + "\n");
    const list = await (await fetch(`${base}/api/v2/domains/public/inboxes/template${n}`)).json();
    const url = `${base}/inbox/${inbox}/${list.msgs[0].id}/frame`;
    for (const [width, px] of Object.entries(WIDTHS)) {
      const size = { width: px, height: 800 };
      await Promise.all([page.setViewportSize(size), frame.setViewportSize(size)]);
      await frame.goto(url);
      await page.goto("about:blank");
      await page.setContent(html.replace(/<script\b[\s\S]*?<\/script>/gi, ""), { waitUntil: "load" });
      const boxes = await frame.evaluate(() => [...document.images].map((image) => (image.hasAttribute("blocked") ? image.src : null)));
      await page.evaluate(withoutLoads, boxes);
      const shot = async (of) => {
        const height = await of.evaluate(() => Math.max(document.documentElement.scrollHeight, document.body?.scrollHeight ?? 0));
        const clip = { x: 0, y: 0, width: px, height: Math.min(height, HEIGHT_MAX_PX) };
        return of.screenshot({ fullPage: true, animations: "disabled", clip });
      };
      const pictures = [await shot(frame), await shot(page)];
      const part = await different(judge, ...pictures);
      if (part > worst) [worst, worstName] = [part, `${name} at ${width}`];
      if (part > DIFFERENT_MAX) {
        over.push(`${name} at ${width}: ${(part * 100).toFixed(2)}%`);
        for (const [side, picture] of [["ours", pictures[0]], ["bare", pictures[1]]]) {
          fs.writeFileSync(path.join(shots, `${name.replaceAll(/\W+/g, "-")}-${width}-${side}.png`), picture);
        }
      }
    }
  }
  assert.deepEqual(over, [], "templates that look different");
  assert.deepEqual(foreign, [], "what was fetched");
  console.log(`ok ${all.length} templates at three widths: at most ${(worst * 100).toFixed(3)}% of the pixels differ (${worstName})`);
});
