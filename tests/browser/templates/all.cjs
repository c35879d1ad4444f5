// Public templates of mails, built from their packages: name and HTML of each.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

/** Where a package of this folder's list is installed. */
const folder = (name) => path.dirname(require.resolve(`${name}/package.json`));

/** Foundation for Emails: as it builds them, with its style sheet in the mail. */
function foundation() {
  const of = folder("foundation-emails");
  const css = fs.readFileSync(path.join(of, "dist/foundation-emails.css"), "utf8");
  const files = fs.readdirSync(path.join(of, ".templates")).filter((file) => file.endsWith(".html"));
  return files.map((file) => {
    const html = fs.readFileSync(path.join(of, ".templates", file), "utf8");
    return { name: `foundation ${path.basename(file, ".html")}`, html: html.replace(/<link rel="stylesheet"[^>]*>/, `<style>${css}</style>`) };
  });
}

/** Mailgen: each of its themes with each of its examples. */
function mailgen() {
  const Mailgen = require("mailgen");
  const action = { instructions: "To go on, press here:", button: { color: "#22BC66", text: "Go on", link: "https://timetable.test/" } };
  const mails = {
    welcome: { name: "Ann Lee", intro: "Welcome aboard.", action, outro: "Questions? Write back." },
    reset: { name: "Ann Lee", intro: "Somebody asked for another password.", action: { ...action, button: { ...action.button, color: "#DC4D2F" } } },
    receipt: {
      name: "Ann Lee",
      intro: "Your berth is booked.",
      table: {
        data: [{ item: "Berth", description: "Two-bed cabin", price: "89.00" }, { item: "Breakfast", description: "Until Basel", price: "9.50" }],
        columns: { customWidth: { item: "20%", price: "15%" }, customAlignment: { price: "right" } },
      },
      action,
    },
  };
  return ["default", "neopolitan", "salted", "cerberus"].flatMap((theme) => {
    const generator = new Mailgen({ theme, product: { name: "Timetable", link: "https://timetable.test/" } });
    return Object.entries(mails).map(([name, body]) => ({ name: `mailgen ${theme} ${name}`, html: generator.generate({ body }) }));
  });
}

/** MJML: what it makes of the mails in `mjml.cjs`. */
async function mjml() {
  // It is made for browsers, and asks for no more of one than its name.
  globalThis.window ??= globalThis;
  const compile = require("mjml-browser");
  const { sources } = require("./mjml.cjs");
  const all = [];
  for (const [name, source] of Object.entries(sources)) {
    const { html, errors } = await compile(source, { validationLevel: "soft" });
    if (errors.length > 0) throw new Error(`mjml ${name}: ${errors.map((error) => error.formattedMessage).join("; ")}`);
    all.push({ name: `mjml ${name}`, html });
  }
  return all;
}

module.exports.templates = async () => [...foundation(), ...mailgen(), ...(await mjml())];
