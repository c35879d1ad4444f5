// Where things are on the mail pages: each rule measures boxes in a real browser, at the widths of a desk and of a phone.
//
// The argument names the rule; MAIL_URL and MAIL_SMTP say where the service is, SHOTS where screenshots go, CHROMIUM which
// browser. The first box in a wrong place ends the run with its reason.
"use strict";

const assert = require("node:assert/strict");
const path = require("node:path");
const { run } = require("./harness.cjs");
const { send } = require("./smtp.cjs");

const base = process.env.MAIL_URL;
const shots = process.env.SHOTS;
const rule = process.argv[2];
const PATIENCE_MS = 30_000;
/** Boxes are counted in sixty-fourths of a pixel. */
const ROUNDING_PX = 0.04;
const SIZES = { wide: [1440, 900], desk: [1200, 801], narrow: [920, 700], phone: [390, 780], small: [320, 640] };

const long = "a.recipient.whose.name.is.longer.than.any.list.is.wide@and.whose.domain.goes.on.and.on.night.test";

/** Mails of each kind that the pages draw. */
async function fill() {
  for (let n = 0; n < 24; n++) {
    await send([`ann${n % 2}@night.test`, "many@night.test"], `From: Ann ${n} <a@x.test>\nSubject: Mail ${n}\n\n${n % 3 ? `Text ${n}\n${"\nA line.\n".repeat(50)}` : ""}`);
  }
  const links = [20, 31, 36, 60, 200].map((n) => `https://night.test/${"l".repeat(n)}`).join("\n");
  for (const to of [long, "codes@night.test"]) await send(to, `From: Bank <b@x.test>\nCc: c@x.test\nSubject: A code\n\nYour code is 482913, or AB12-CD34, or 99-12-77.\n${links}\n`);
  await send("sale@night.test", [
    "From: Shop <s@x.test>", "Subject: Sale", "MIME-Version: 1.0", "Content-Type: multipart/mixed; boundary=m", "",
    "--m", "Content-Type: text/html; charset=utf-8", "", `<table width="643"><tr><td>wide</td></tr></table><p style="height:1801px">Sale</p><img src="http://127.0.0.1:1/a.gif" width="90" height="90">`, "",
    "--m", `Content-Type: application/pdf; name="ticket.pdf"`, "Content-Disposition: attachment", "", "x", "--m--", "",
  ].join("\n"));
}

async function open(browser, size, options = {}) {
  const [width, height] = SIZES[size];
  const context = await browser.newContext({ viewport: { width, height }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("pageerror", (error) => assert.fail(`the page's script failed: ${error}`));
  return page;
}

/** Does `work` at each size, and leaves a picture of what was wrong. */
async function atEachSize(browser, work, options) {
  for (const size of Object.keys(SIZES)) {
    const page = await open(browser, size, options);
    try {
      await work(page, size);
    } catch (error) {
      await page.screenshot({ path: path.join(shots, `${rule}-${size}-failed.png`) });
      throw error;
    }
    await page.context().close();
  }
}

async function openMail(page, inbox) {
  await page.goto(`${base}/inbox/${inbox}`);
  await page.click(".row a >> nth=0");
  await page.waitForSelector(".mail");
}

/** Points of the element, a little within its edges, at which something else is seen. */
const covered = (page, selector) => page.evaluate((selector) => {
  const bar = document.querySelector(selector);
  const box = bar.getBoundingClientRect();
  const found = [];
  for (const x of [box.left + 20, box.left + box.width / 2, box.right - 20]) {
    for (const y of [box.top + 1, box.top + box.height / 2, box.bottom - 2]) {
      const seen = document.elementFromPoint(x, y);
      if (!seen || !bar.contains(seen)) found.push(`${Math.round(x)},${Math.round(y)}: ${seen ? `${seen.tagName}.${seen.className}` : "beyond the window"}`);
    }
  }
  return found;
}, selector);

const rules = {
  /** A toast has as much room on its left as on its right, above as below, with a button and without. */
  async "toast-padding"(browser) {
    await atEachSize(browser, async (page, size) => {
      await page.goto(`${base}/inbox/many@night.test`);
      for (const [words, undo] of [["Copied.", undefined], ["1 mail deleted.", {}]]) {
        const room = await page.evaluate(([words, undo]) => {
          say(words, undo);
          const toast = one("#toast").getBoundingClientRect();
          const within = [...one("#toast").children].map((child) => child.getBoundingClientRect()).filter((box) => box.width > 0);
          const of = (how, edge) => how(...within.map((box) => box[edge]));
          return {
            left: of(Math.min, "left") - toast.left, right: toast.right - of(Math.max, "right"),
            top: of(Math.min, "top") - toast.top, bottom: toast.bottom - of(Math.max, "bottom"),
          };
        }, [words, undo]);
        for (const edge of ["right", "top", "bottom"]) {
          assert.ok(Math.abs(room[edge] - room.left) <= ROUNDING_PX, `${size}, "${words}": ${JSON.stringify(room)}`);
        }
      }
    });
  },

  /** A mail that arrives slides in below what acts on the selected, at each moment of its way. */
  async "arriving-row"(browser) {
    let n = 0;
    await atEachSize(browser, async (page, size) => {
      const inbox = `live-${size}@night.test`;
      await send(inbox, "Subject: first\n\nhello\n");
      await page.goto(`${base}/inbox/${inbox}`);
      await page.waitForSelector("#live[data-state=on]");
      await page.evaluate(() => {
        // The way is stopped where it begins.
        document.addEventListener("animationstart", (event) => {
          window.way = event.target.getAnimations()[0];
          window.way.pause();
        });
      });
      await send(inbox, `Subject: second ${n++}\n\nhello\n`);
      await page.waitForFunction(() => window.way);
      for (const ms of [0, 40, 80, 160, 240, 319]) {
        await page.evaluate((ms) => (window.way.currentTime = ms), ms);
        assert.deepEqual(await covered(page, ".picks-bar"), [], `${size}, after ${ms} ms`);
      }
    }, { reducedMotion: "no-preference" });
  },

  /** Whatever has a line above or below it lies on whole pixels, on each page. */
  async "whole-pixels"(browser) {
    await atEachSize(browser, async (page, size) => {
      const look = async (what) => {
        const found = await page.evaluate((rounding) => {
          const broken = (px) => Math.abs(px - Math.round(px)) > rounding;
          const wrong = [];
          for (const element of document.querySelectorAll("body *:not(svg *)")) {
            const style = getComputedStyle(element);
            const box = element.getBoundingClientRect();
            if (box.height === 0 || box.width <= 1 || style.visibility === "hidden") continue;
            const above = parseFloat(style.borderTopWidth) > 0 && broken(box.top);
            const below = parseFloat(style.borderBottomWidth) > 0 && broken(box.bottom);
            if (above || below) wrong.push(`${element.tagName.toLowerCase()}.${element.className} from ${box.top} to ${box.bottom}`);
          }
          return wrong.slice(0, 5);
        }, ROUNDING_PX);
        assert.deepEqual(found, [], `${what} (${size})`);
      };
      for (const where of ["", "about", "api", "terms", "inbox/a%20b", "inbox/nobody@night.test", "inbox/*@*", "inbox/many@night.test", "inbox/*@*/search?q=code"]) {
        await page.goto(`${base}/${where}`);
        await look(where || "home");
      }
      await openMail(page, "codes@night.test");
      await page.evaluate(() => all(".mail details").forEach((it) => (it.open = true)));
      await look("a mail with codes and links");
      await page.fill("#tagging input[name=tag]", `tag ${size}`);
      await page.click("#tagging button");
      await page.waitForSelector(".tags form.tag");
      await look("a mail with a tag");
      await page.goto(`${base}/inbox/*@*`);
      await page.waitForSelector(".row .tag", { state: "attached" });
      await look("all mail with a tag");
      await openMail(page, "sale@night.test");
      await page.waitForFunction(() => document.querySelector("iframe.frame").clientHeight > 1800);
      await look("a mail of HTML");
      for (const tab of ["Text", "Headers", "Source", "Attachments"]) {
        await page.click(`.tabs >> text=${tab}`);
        await page.waitForSelector(`.tabs [aria-current=page] >> text=${tab}`);
        await look(tab);
      }
    });
  },

  /** However far list and mail are scrolled, the bars that act on them are whole: no header cuts them. */
  async "whole-bars"(browser) {
    await atEachSize(browser, async (page, size) => {
      await page.goto(`${base}/inbox/many@night.test`);
      const scroll = (selector, px) => page.evaluate(([selector, px]) => {
        const it = document.querySelector(selector);
        const scroller = /auto|scroll/.test(getComputedStyle(it).overflowY) ? it : document.scrollingElement;
        scroller.scrollTop = px;
      }, [selector, px]);
      for (const px of [0, 20, 130, 150, 170, 400, 900]) {
        await scroll("#list", px);
        assert.deepEqual(await covered(page, ".picks-bar"), [], `the list's bar at ${px} px (${size})`);
        const above = await page.evaluate(() => one(".picks-bar").getBoundingClientRect().top - Math.max(0, one(".top").getBoundingClientRect().bottom));
        assert.ok(px < 400 || above === 0, `rows show through ${above} px above the bar (${size})`);
      }
      // A row that the keys lead to is not below the bar.
      await scroll("#list", 0);
      await page.locator(".row a").nth(20).focus();
      for (let row = 19; row >= 0; row--) {
        await page.keyboard.press("k");
        const [top, bar] = await page.evaluate(() => [document.activeElement.getBoundingClientRect().top, one(".picks-bar").getBoundingClientRect().bottom]);
        assert.ok(top >= bar - 1, `row ${row} begins at ${top}, the bar ends at ${bar} (${size})`);
      }
      await page.locator(".row a", { hasText: "Mail 22" }).click();
      await page.waitForSelector(".mail");
      for (const px of [0, 20, 40, 56, 100, 400]) {
        await scroll("#reading", px);
        assert.deepEqual(await covered(page, ".tools"), [], `the mail's bar at ${px} px (${size})`);
      }
    });
  },

  /** A copy button stands on a line of what it copies, however long that is. */
  async "copy-buttons"(browser) {
    await atEachSize(browser, async (page, size) => {
      const look = async (what, wanted) => {
        const [count, alone] = await page.evaluate(() => {
          const buttons = all("[data-copy]").filter((button) => button.getClientRects().length > 0);
          const lonely = buttons.filter((button) => {
            const box = button.getBoundingClientRect();
            const words = [...button.previousElementSibling.getClientRects()];
            return !words.some((line) => line.top < box.bottom && line.bottom > box.top && line.left < box.left);
          });
          return [buttons.length, lonely.map((button) => button.dataset.copy)];
        });
        assert.deepEqual(alone, [], `${what} (${size})`);
        assert.ok(count >= wanted, `${what}: ${count} buttons (${size})`);
      };
      for (const inbox of ["ann0@night.test", long, `${"a".repeat(26)}@night.test`]) {
        await page.goto(`${base}/inbox/${inbox}`);
        await look(inbox, 1);
      }
      await openMail(page, "codes@night.test");
      await page.evaluate(() => (one(".links").open = true));
      await look("codes and links", 5 + 1);
    });
  },

  /** The width that was chosen stays when the mail is shown in the dark, with its pictures, and after another tab. */
  async "kept-width"(browser) {
    for (const [name, px] of [["Phone", 375], ["Tablet", 768]]) {
      const page = await open(browser, "wide");
      const width = (what) => page.waitForFunction((px) => {
        const frame = document.querySelector("iframe.frame");
        return frame?.contentDocument?.readyState === "complete" && frame.contentWindow.innerWidth === px;
      }, px).catch(async () => {
        const now = await page.evaluate(() => document.querySelector("iframe.frame")?.contentWindow.innerWidth);
        await page.screenshot({ path: path.join(shots, `${rule}-failed.png`) });
        assert.fail(`${name} is ${px} wide, ${what} ${now}`);
      });
      page.setDefaultTimeout(5_000);
      await openMail(page, "sale@night.test");
      await page.click(`.looks >> text=${name}`);
      await width("at once");
      await page.click(".looks >> text=Dark");
      await page.waitForURL(/dark=1/);
      await width("in the dark");
      await page.click("#theme");
      await width("in the other theme");
      await page.click(".blocked a");
      await page.waitForURL(/remote=load/);
      await width("with its pictures");
      await page.click(".tabs >> text=Headers");
      await page.waitForSelector(".headers");
      await page.click(".tabs >> text=HTML");
      await width("after another tab");
      assert.ok(await page.isVisible(".looks [aria-current] >> text=Dark"), "the dark stays, too");
      await page.reload();
      await width("when it is loaded again");
      // And back to the desk's, which no address names.
      await page.click(".looks >> text=Desk");
      await page.click(".looks >> text=Dark");
      await page.waitForFunction(() => !/width=|dark=/.test(location.search));
      await page.context().close();
    }
  },
};

run(async (browser) => {
  await fill();
  await rules[rule](browser);
  console.log(`ok ${rule}`);
});
