// Eight things that people do with caught mail, done in a browser, and how many actions each takes: in ours, and in Mailpit
// where it is there. An action is a click, a key, or a text that is typed; the list of all mail is open at the beginning.
//
// MAIL_URL and MAIL_SMTP say where our service is, MAILPIT_URL and MAILPIT_SMTP where Mailpit is (neither: what was counted
// in version RECORDED is held against), SHOTS where screenshots go, CHROMIUM which browser.
"use strict";

const assert = require("node:assert/strict");
const path = require("node:path");
const { run } = require("./harness.cjs");
const { send } = require("./smtp.cjs");

const { MAIL_URL, MAIL_SMTP, MAILPIT_URL, MAILPIT_SMTP, SHOTS } = process.env;
const PATIENCE_MS = 30_000;
/** What Mailpit needs, counted by this script in version 1.30.5. */
const RECORDED = {
  "find the code in the third mail": 1,
  "delete two": 3,
  "open the attachment": 2,
  "see it on a phone": 2,
  "find last hour's mail from X": 2,
  "copy the link": 3,
  "read the source": 2,
  "clear the inbox": 2,
};

const LINK = "https://night.test/platform?berth=7";
const letter = (from, subject, html, more = []) => [
  `From: ${from}`, `To: tasks@night.test`, `Subject: ${subject}`, `MIME-Version: 1.0`, `Content-Type: multipart/mixed; boundary=m`, ``,
  `--m`, `Content-Type: text/html; charset=utf-8`, ``, `<html><body>${html}</body></html>`, ``, ...more, `--m--`, ``,
].join("\n");
const ATTACHED = [`--m`, `Content-Type: text/plain; name="ticket.txt"`, `Content-Disposition: attachment; filename="ticket.txt"`, ``, `Berth 7`];

/** The newest first: a link, an attachment, a code in the third. */
async function fill(smtp) {
  process.env.MAIL_SMTP = smtp;
  const mails = [
    letter("Old <old@friends.test>", "Fifth", "<p>five</p>"), letter("Ben <ben@friends.test>", "Fourth", "<p>four</p>"),
    letter("Bank <bank@shop.test>", "Third", "<p>Your code is 493021</p>"),
    letter("Ann <ann@friends.test>", "Second", "<p>two</p>", ATTACHED),
    letter("Shop <x@shop.test>", "First", `<p style="width:90%">See <a href="${LINK}">here</a></p>`),
  ];
  for (const mail of mails) {
    await send("tasks@night.test", mail);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** How each does it: `act` counts. `row` is the list's row of a subject. */
const SITES = {
  ours: {
    list: "/inbox/*@*",
    row: (subject) => `.row:has(.subject bdi:text-is("${subject}"))`,
    open: (page, act, subject) => act(() => page.click(`.row a:has-text("${subject}")`)),
    async code(page) {
      await page.waitForSelector(".codes code >> text=493021");
    },
    async deleteTwo(page, act) {
      for (const subject of ["Fourth", "Fifth"]) await act(() => page.locator(`.row:has-text("${subject}") .pick input`).click());
      await act(() => page.click(".picks-bar >> text=Delete"));
    },
    attachment: (page) => page.click(".attachments a"),
    async phone(page, act) {
      await act(() => page.click(".looks >> text=Phone"));
      await page.waitForFunction(() => document.querySelector("iframe.frame").contentWindow.innerWidth <= 400);
    },
    async search(page, act, words) {
      await act(() => page.fill("#q", words));
      await act(() => page.press("#q", "Enter"));
      await page.waitForSelector("text=1 mail found");
    },
    async link(page, act) {
      await act(() => page.click(".links summary"));
      await act(() => page.click(`.links [data-copy="${LINK}"]`));
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), LINK);
    },
    async source(page, act) {
      await act(() => page.click(".tabs >> text=Source"));
      await page.waitForSelector("pre.source >> text=Content-Type: multipart/mixed");
    },
    async clear(page, act) {
      await act(() => page.click("#delete-all summary"));
      await act(() => page.click("#delete-all button"));
    },
  },
  mailpit: {
    list: "/",
    row: (subject) => `#message-page .message:has(.subject b:text-is("${subject}"))`,
    open: (page, act, subject) => act(() => page.click(`#message-page .message:has(.subject b:text-is("${subject}"))`)),
    async code(page) {
      await page.frameLocator("#preview-html").locator("text=493021").waitFor();
    },
    async deleteTwo(page, act) {
      for (const subject of ["Fourth", "Fifth"]) {
        await act(() => page.click(`#message-page .message:has(.subject b:text-is("${subject}"))`, { modifiers: ["Control"] }));
      }
      await act(() => page.click("button:visible:has-text('Delete selected')"));
    },
    attachment: (page) => page.click("a.attachment"),
    async phone(page, act) {
      await act(() => page.locator("button:visible:has(.bi-phone)").first().click());
    },
    async search(page, act, words) {
      await act(() => page.fill("input[placeholder^='Search']", words));
      await act(() => page.press("input[placeholder^='Search']", "Enter"));
    },
    async link(page, act) {
      // The browser's own menu, which no script can open: two actions.
      await page.frameLocator("#preview-html").locator(`a[href="${LINK}"]`).waitFor();
      await act(() => page.frameLocator("#preview-html").locator(`a[href="${LINK}"]`).click({ button: "right" }));
      await act(() => page.keyboard.press("Escape"));
    },
    async source(page, act) {
      await act(() => page.click("#nav-raw-tab"));
      await page.waitForSelector("#nav-raw.active");
    },
    async clear(page, act) {
      await act(() => page.locator("button:visible", { hasText: /Delete all/ }).first().click());
      await act(() => page.locator(".modal.show button", { hasText: /^\s*Delete/ }).first().click());
    },
  },
};

async function tasks(browser, kind, url) {
  const site = SITES[kind];
  const counted = {};
  const each = async (name, work) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", permissions: ["clipboard-read", "clipboard-write"] });
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    await page.goto(`${url}${site.list}`);
    await page.waitForSelector(site.row("First"));
    let actions = 0;
    const act = async (work) => {
      actions += 1;
      await work();
    };
    try {
      await work(page, act);
    } catch (error) {
      await page.screenshot({ path: path.join(SHOTS, `${kind}-failed.png`) });
      throw error;
    }
    counted[name] = actions;
    await context.close();
  };
  await each("find the code in the third mail", async (page, act) => {
    await site.open(page, act, "Third");
    await site.code(page);
  });
  await each("open the attachment", async (page, act) => {
    await site.open(page, act, "Second");
    const opened = new Promise((done) => {
      page.once("download", done);
      page.context().once("page", done);
    });
    await act(() => site.attachment(page));
    await opened;
  });
  await each("see it on a phone", async (page, act) => {
    await site.open(page, act, "First");
    await site.phone(page, act);
  });
  await each("find last hour's mail from X", async (page, act) => {
    const since = new Date(Date.now() - 3_600_000).toISOString().slice(0, kind === "ours" ? 16 : 10);
    await site.search(page, act, `from:x@shop.test after:${since}`);
    await page.waitForSelector(site.row("First"));
    assert.equal(await page.locator(site.row("Second")).count(), 0);
  });
  await each("copy the link", async (page, act) => {
    await site.open(page, act, "First");
    await site.link(page, act);
  });
  await each("read the source", async (page, act) => {
    await site.open(page, act, "First");
    await site.source(page, act);
  });
  await each("delete two", async (page, act) => {
    await site.deleteTwo(page, act);
    await page.waitForFunction((selector) => document.querySelectorAll(selector).length === 3, kind === "ours" ? ".row" : "#message-page .message");
  });
  await each("clear the inbox", async (page, act) => {
    await site.clear(page, act);
    await page.waitForFunction((selector) => document.querySelectorAll(selector).length === 0, kind === "ours" ? ".row" : "#message-page .message");
  });
  return counted;
}

run(async (browser) => {
  await fill(MAIL_SMTP);
  const ours = await tasks(browser, "ours", MAIL_URL);
  let theirs = RECORDED;
  if (MAILPIT_URL) {
    await fill(MAILPIT_SMTP);
    theirs = await tasks(browser, "mailpit", MAILPIT_URL);
    assert.deepEqual(theirs, RECORDED, "what is recorded of Mailpit");
  }
  for (const [name, actions] of Object.entries(ours)) {
    console.log(`${name}: ${actions} in ours, ${theirs[name]} in Mailpit`);
    assert.ok(actions <= theirs[name], name);
  }
  assert.deepEqual(Object.keys(ours).sort(), Object.keys(RECORDED).sort());
  console.log("ok eight tasks");
});
