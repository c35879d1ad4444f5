// What all scripts of the pages use.
"use strict";

const one = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// What this browser remembers. Storage may be forbidden; then it remembers nothing.
const memory = {
  load(key) {
    try {
      return JSON.parse(localStorage.getItem(key));
    } catch {
      return null;
    }
  },
  save(key, value) {
    try {
      localStorage.setItem(key, JSON.stringify(value));
    } catch {
      // Full or forbidden.
    }
  },
};

// Names the host in the browser's bar, where it is not this machine's own: a proxy that asks by another name, and does not
// say for whom, is known by that.
if (!["localhost", "127.0.0.1", "[::1]"].includes(location.hostname)) {
  fetch("/healthz", { headers: { "x-page-host": location.host }, cache: "no-store" }).catch(() => {});
}
