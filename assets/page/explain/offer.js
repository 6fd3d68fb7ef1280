// What a first visitor is offered once, in the row of playback where it covers nothing: one round,
// slowly, which shows what speculative decoding is.

import { element, find } from "specviz/dom/dom.js";

const KEY = "specviz-offered";

/**
 * Offer it to whoever has not seen it, unless the link already says what to look at.
 * @param {HTMLElement} root
 * @param {Asked} asked
 * @param {() => void} accept
 */
export function offerRound(root, asked, accept) {
  if (namesRun(asked) || wasSeen()) return;
  const node = element("span", "sv-offer", "New here? ");
  const button = (/** @type {string} */ text, /** @type {() => void} */ act) => {
    const one = element("button", "", text);
    one.type = "button";
    one.addEventListener("click", () => { end(node, root); act(); });
    return one;
  };
  node.append(button("See one round, slowly", accept), button("Skip", () => {}));
  find(root, ".sv-transport").append(node);
}

/**
 * @param {HTMLElement} node
 * @param {HTMLElement} root
 */
function end(node, root) {
  node.remove();
  find(root, "[data-play]").focus({ preventScroll: true });
  try {
    localStorage.setItem(KEY, "seen");
  } catch { /* then it is offered again */ }
}

/** @param {Asked} asked */
const namesRun = ({ preset, prompt, recording, stage, settings }) =>
  Boolean(preset ?? prompt ?? recording) || stage || Object.keys(settings).length > 0;

function wasSeen() {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return true; // where nothing can be remembered it would be offered for ever
  }
}
