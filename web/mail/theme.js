// Before the first paint: the theme and the width that were chosen last, so that nothing flashes and nothing jumps.
(() => {
  const root = document.documentElement;
  root.classList.add("script");
  try {
    const theme = JSON.parse(localStorage.getItem("theme"));
    if (theme === "day" || theme === "night") root.dataset.theme = theme;
    const width = JSON.parse(localStorage.getItem("list-width"));
    if (typeof width === "number") root.style.setProperty("--list", `${width}px`);
  } catch {
    // Storage is forbidden, or was written by an earlier version: what the system says stays.
  }
})();
