// The legend: its items fill the tokens of their outcome in the lanes, as long as a visitor points at one.

import { closest, find } from "specviz/dom/dom.js";

/**
 * Have the items of the legend fill the tokens that they count.
 * @param {HTMLElement} root
 */
export function listenToLegend(root) {
  const legend = find(root, ".sv-legend");
  const fill = (/** @type {string | undefined} */ outcome) => {
    if (outcome) root.dataset.filled = outcome;
    else delete root.dataset.filled;
  };
  legend.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse") fill(outcomeAt(event));
  });
  legend.addEventListener("pointerleave", () => fill(undefined));
  legend.addEventListener("focusin", (event) => fill(outcomeAt(event)));
  legend.addEventListener("focusout", () => fill(undefined));
  // A tap gives a button no focus in every browser; the next one elsewhere takes the colour away.
  document.addEventListener("click", (event) => fill(outcomeAt(event)));
}

/** The outcome whose item an event happened in. @param {Event} event */
function outcomeAt(event) {
  const count = closest(event, ".sv-legend li")?.querySelector("[data-count]");
  return count instanceof HTMLElement ? count.dataset.count : undefined;
}
