// Before the first paint: the theme that was chosen last, so that nothing flashes.
(() => {
  document.documentElement.classList.add("script");
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "day" || theme === "night") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is forbidden: the system's theme stays.
  }
})();
