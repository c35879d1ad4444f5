// The frame with a mail's HTML: as high as what is in it, so that nothing scrolls within what scrolls, and no wider than
// there is room for. The frame runs no scripts and is of our origin, so that this may look at it.
"use strict";

const FRAME_MIN_PX = 120;
// Higher, and it scrolls by itself: no browser draws endlessly high pages well.
const FRAME_MAX_PX = 60_000;
const WIDTHS_PX = { phone: 375, tablet: 768 };

/** Makes the frame as high as its document at the width that is asked for, and smaller as a whole where that is too wide. */
function fitFrame(frame) {
  const inside = frame.contentDocument;
  if (!inside?.body) return;
  const room = frame.parentElement.clientWidth;
  const asked = Math.min(WIDTHS_PX[frame.dataset.width] ?? room, Math.max(room, 320));
  frame.style.zoom = "";
  frame.style.width = `${asked}px`;
  // What is as high as its window would keep the height that it had.
  frame.style.height = `${FRAME_MIN_PX}px`;
  const scroller = inside.scrollingElement ?? inside.documentElement;
  const width = Math.max(asked, scroller.scrollWidth);
  if (width > room) {
    frame.style.width = `${width}px`;
    frame.style.zoom = String(room / width);
  }
  const height = () => Math.max(inside.documentElement.offsetHeight, scroller.scrollHeight);
  const fits = Math.min(height(), FRAME_MAX_PX);
  frame.style.height = `${fits}px`;
  // A part that is as high as the window grew with it, once. What is shown smaller ends on a whole pixel, too.
  const zoom = Number(frame.style.zoom || 1);
  const whole = Math.ceil(Math.min(Math.max(fits, height()), FRAME_MAX_PX) * zoom);
  frame.style.height = `${whole / zoom}px`;
}

/** Fits it now, when its pictures have come, and whenever there is more or less room. */
function dressFrame(frame) {
  const fit = () => fitFrame(frame);
  const loaded = () => {
    fit();
    frame.contentDocument?.addEventListener("load", fit, true);
    frame.contentDocument?.addEventListener("toggle", fit, true);
    frame.contentDocument?.fonts?.ready.then(fit);
  };
  frame.addEventListener("load", loaded);
  if (frame.contentDocument?.readyState === "complete") loaded();
  let room = 0;
  new ResizeObserver(() => {
    if (frame.parentElement?.clientWidth === room) return;
    room = frame.parentElement?.clientWidth ?? 0;
    fit();
  }).observe(frame.parentElement);
}

/** Another width, without asking the server again. */
function chooseWidth(link) {
  const frame = one("iframe.frame");
  if (!frame) return false;
  for (const other of all("[data-width]", link.parentElement)) other.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  frame.dataset.width = link.dataset.width;
  // The links to the same mail in another look keep the width.
  for (const other of all(".looks a:not([data-width]), .blocked a, .tabs a")) {
    const url = new URL(other.href);
    if (link.dataset.width === "desk") url.searchParams.delete("width");
    else url.searchParams.set("width", link.dataset.width);
    other.href = url.href;
  }
  history.replaceState(history.state, "", link.href);
  fitFrame(frame);
  return true;
}
