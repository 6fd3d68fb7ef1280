// The controls around the player: the settings panel, the theme, the prompt presets, Run and Stop.

import { plural, signsText } from "specviz/words/words.js";

const WIDE = "(min-width: 761px)"; // screens on which the panel covers a part of the player
const ROOMY = "(min-width: 1121px)"; // screens on which it is next to the player, as in the style sheet

// Press a button of the page if it exists: a saved run has few of them.
/** @param {string} selector */
function press(selector, number = 0) {
  const button = document.querySelectorAll(selector)[number];
  if (button instanceof HTMLElement) button.click();
}

export class Shell {
  #themed;
  #panelButton = document.querySelector("[data-toggle-panel]");

  /** @param {(theme: Theme) => void} themed called when a visitor has chosen a theme */
  constructor(themed) {
    this.#themed = themed;
    this.#panelButton?.addEventListener("click", () => this.#togglePanel());
    document.querySelector("[data-toggle-theme]")?.addEventListener("click", () => this.toggleTheme());
    // A press outside the settings closes them, after its own action, since the page then moves. The target
    // is noted when the press begins, since its element may be removed. The top bar counts as inside.
    let isBeside = false;
    document.addEventListener("pointerdown", ({ target }) => {
      isBeside = target instanceof Element && !target.closest("#panel, #topbar, dialog");
    });
    document.addEventListener("click", () => {
      if (isBeside) this.closePanel();
      isBeside = false;
    });
  }

  /** @param {string} theme */
  setTheme(theme) {
    document.body.classList.toggle("dark", theme === "dark");
  }

  toggleTheme() {
    const theme = document.body.classList.contains("dark") ? "light" : "dark";
    this.setTheme(theme);
    this.#themed(theme);
  }

  run() {
    press("#run");
  }

  stop() {
    press("#stop");
  }

  /** Show the settings if the screen is wide enough. */
  openPanel() {
    if (!this.#isPanelOpen && matchMedia(WIDE).matches) this.#togglePanel();
  }

  /** Close settings that would cover a lane, because a run begins. */
  clearLanes() {
    if (!matchMedia(ROOMY).matches) this.closePanel();
  }

  /** @param {number} number from 1 */
  choosePreset(number) {
    press("button.preset", number - 1);
  }

  // Show the current settings on the button of their panel, and mark the preset in the controls.
  /** @param {Address} address */
  summarise({ chosen, settings: { gamma, gamma_policy: policy, temperature, max_new_tokens: length } }) {
    const sampling = temperature === 0 ? "greedy" : `T ${temperature}`;
    const guesses = policy === "fixed" ? `γ ${gamma}` : `γ ≤ ${gamma}`;
    this.#panelButton?.setAttribute("title", `${guesses} · ${sampling} · ${plural(Number(length), "token")}`);
    for (const button of document.querySelectorAll("button.preset")) {
      button.setAttribute("aria-pressed", String(button.textContent?.trim() === chosen?.name));
    }
  }

  /** Mark a prompt that contains special tokens of a chat template. @param {string[]} signs */
  markSigns(signs) {
    document.body.classList.toggle("sv-has-signs", signs.length > 0);
    const sentence = signs.length ? signsText(signs) : "";
    const button = document.querySelector("#signs");
    button?.setAttribute("title", sentence);
    button?.setAttribute("aria-label", sentence);
  }

  /** @param {boolean} canStop whether there is a run to stop */
  offerStop(canStop) {
    const button = document.querySelector("#stop");
    if (button instanceof HTMLButtonElement) button.disabled = !canStop;
  }

  /** Close the settings, and return whether they were open. */
  closePanel() {
    const isOpen = this.#isPanelOpen;
    if (isOpen) this.#togglePanel();
    return isOpen;
  }

  get #isPanelOpen() {
    return document.body.classList.contains("sv-panel-open");
  }

  #togglePanel() {
    // The focus would be lost with the panel.
    const hadFocus = document.activeElement?.closest("#panel");
    const open = document.body.classList.toggle("sv-panel-open");
    this.#panelButton?.setAttribute("aria-expanded", String(open));
    if (hadFocus && this.#panelButton instanceof HTMLElement) this.#panelButton.focus();
  }
}
