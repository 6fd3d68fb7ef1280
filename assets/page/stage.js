// The stage: one screen for the last row, no controls, and a guess before the reveal.

const SIZES = [0.7, 0.85, 1, 1.2, 1.45, 1.75];
const USUAL = SIZES.indexOf(1);

/** `changed()` is called when the view has another shape. */
export function createStage(root, changed) {
  const help = root.querySelector("[data-help]");
  let size = USUAL;

  function set(on) {
    document.body.classList.toggle("sv-stage", on);
    if (!on) reveal();
    changed();
  }

  function isOn() {
    return document.body.classList.contains("sv-stage");
  }

  function grow(by) {
    size = Math.max(0, Math.min(size + by, SIZES.length - 1));
    root.style.setProperty("--sv-size", SIZES[size]);
    changed();
  }

  function isGuessing() {
    return root.dataset.guess === "open";
  }

  function reveal() {
    delete root.dataset.guess;
    root.querySelector("[data-ask]").hidden = true;
  }

  function ask() {
    root.dataset.guess = "open";
    root.querySelector("[data-ask]").hidden = false;
  }

  function toggleHelp() {
    if (help.open) help.close(); else help.showModal();
  }

  // A press beside the dialog closes it: inside it, the press lands on what it holds.
  help.addEventListener("click", (event) => { if (event.target === help) help.close(); });
  help.querySelector("button").addEventListener("click", () => help.close());

  return {
    set, isOn, grow, isGuessing, reveal, toggleHelp,
    toggle() { set(!isOn()); },
    guess() {
      if (isGuessing()) reveal();
      else if (isOn()) ask();
      changed();
    },
  };
}
