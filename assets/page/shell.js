// What surrounds the player: the settings panel, the theme, the prompt presets.

/**
 * Wire the buttons around the player; returns what the keys need of them. `themed(name)` is
 * called when a visitor has chosen a theme.
 */
export function wireShell(themed) {
  const panelButton = document.querySelector("[data-toggle-panel]");
  const themeButton = document.querySelector("[data-toggle-theme]");

  const togglePanel = () => {
    const open = document.body.classList.toggle("sv-panel-open");
    panelButton.setAttribute("aria-expanded", String(open));
  };
  const setTheme = (theme) => document.body.classList.toggle("dark", theme === "dark");
  const toggleTheme = () => {
    const theme = document.body.classList.contains("dark") ? "light" : "dark";
    setTheme(theme);
    themed(theme);
  };

  panelButton?.addEventListener("click", togglePanel);
  themeButton?.addEventListener("click", toggleTheme);

  return {
    setTheme,
    toggleTheme,
    run() { document.querySelector("#run")?.click(); },
    preset(number) {
      document.querySelectorAll("#presets button.preset")[number - 1]?.click();
    },
  };
}

/** The settings in force, on the button that opens their panel. */
export function summarise(gamma, policy, temperature, length) {
  const button = document.querySelector("[data-toggle-panel]");
  const heat = temperature === 0 ? "greedy" : `T ${temperature}`;
  if (button) button.textContent = `γ ${policy === "fixed" ? "" : "≤ "}${gamma} · ${heat} · ${length} tokens`;
  document.querySelector("#greedy")?.setAttribute("aria-pressed", String(temperature === 0));
}
