// The sampling experiment: begins it on the server, asks how far it is, shows what it found.

import { element } from "./lane.js";
import { resultOf } from "./same.js";

const DRAWS = 300; // in each lane
const ASK_EVERY = 400; // ms
const LABEL = `Draw ${DRAWS} in each lane`;
const OFFLINE = "This experiment needs the models, so it is not part of a page that was taken away.";
const BUSY = "Wait for the run to end: the experiment must not disturb it.";

/** `asked()` gives what to draw, `isBusy()` whether a run is under way. */
export function createExperiment(server, asked, isBusy) {
  const node = element("div", "sv-experiment");
  const button = element("button", "sv-button", LABEL);
  const bar = element("progress"), said = element("p"), result = element("div");
  button.type = "button";
  bar.hidden = true;
  said.setAttribute("role", "status");
  node.append(button, bar, said, result);
  let id = null, again = 0, turn = 0; // `turn` tells answers to an experiment that was given up

  button.addEventListener("click", () => (id === null ? begin() : end()));
  if (!server.begin_sampling) {
    button.hidden = true;
    said.textContent = OFFLINE;
  }

  async function begin() {
    if (isBusy()) { said.textContent = BUSY; return; }
    const mine = ++turn;
    id = "";
    result.replaceChildren();
    show({ done: 0, draws: 1, status: "Asking for the models." });
    try {
      let state = await server.begin_sampling({ ...asked(), again, draws: DRAWS });
      again += 1;
      while (mine === turn && !state.over) {
        id = state.id;
        show(state);
        await new Promise((resume) => setTimeout(resume, ASK_EVERY));
        if (mine === turn) state = await server.ask_sampling({ id });
      }
      if (mine === turn) finish(state);
      else if (state.id) server.end_sampling({ id: state.id });
    } catch {
      if (mine === turn) finish({ error: "The server did not answer: try again." });
    }
  }

  function show({ done, draws, status }) {
    button.textContent = "Stop drawing";
    Object.assign(bar, { hidden: false, max: draws, value: done });
    said.textContent = done ? `${done} of ${draws} draws in each lane` : status;
  }

  function finish(state) {
    id = null;
    bar.hidden = true;
    button.textContent = again ? "Draw again" : LABEL;
    said.textContent = state.error ?? (state.stopped ? "Stopped before it could tell." : "");
    if (state.result) result.replaceChildren(resultOf({ ...state.result, draws: state.draws }));
  }

  function end() {
    if (id) server.end_sampling({ id }).catch(() => {});
    turn += 1;
    if (id !== null) finish({ stopped: true });
  }

  return {
    node, end,
    /** Another run is shown: what was drawn for the one before says nothing about it. */
    forget() {
      end();
      again = 0;
      button.textContent = LABEL;
      said.textContent = server.begin_sampling ? "" : OFFLINE;
      result.replaceChildren();
    },
  };
}
