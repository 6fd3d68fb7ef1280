// A pair that is not on this machine yet and whose recordings are shown: its description, and the button that
// fetches it. Afterwards the page continues with it.

import { element, find, pause } from "specviz/dom/dom.js";
import { fetchedShare, fetchedWords, offerWords } from "specviz/words/fetched.js";

const EVERY = 500; // ms between requests
const RETRY_EVERY = 2000; // ms, where the server does not answer
const NO_ANSWER = "The server did not answer: try again.";

export class Fetching {
  #page;
  #on;
  #state;
  #bar = element("progress", "", { max: 1, "aria-label": "Fetched" });
  #about = element("p", "sv-get-about");
  #far = element("p", "sv-get-far", { role: "status" });
  #get = element("button", "sv-button", { dataset: { getPair: "" } });
  #stop = element("button", "sv-quiet is-framed", "Stop", { dataset: { stopFetch: "" } });
  #node = element("section", "sv-get", { "aria-label": "A pair to fetch" },
    element("div", "", this.#about, this.#far, this.#bar), this.#get, this.#stop);
  #isWatching = false;

  /**
   * @param {Needs<"root" | "server" | "config" | "notice" | "shownRun">} page
   * @param {FetchState} state
   * @param {() => void} arrived  called once the pair is here, and the configuration that of a page with it
   */
  constructor(page, state, arrived) {
    this.#page = page;
    this.#state = state;
    this.#on = { arrived };
    this.#get.addEventListener("click", () => this.#ask("begin_fetch"));
    this.#stop.addEventListener("click", () => this.#ask("stop_fetch"));
    find(page.root, ".sv-race").prepend(this.#node);
    this.#take(state);
  }

  /** Another run is shown. */
  shown() {
    this.#draw();
  }

  /** @param {"begin_fetch" | "stop_fetch" | "ask_fetch"} name  of the request */
  async #ask(name) {
    const answer = await this.#page.server[name]?.({}).catch(() => null);
    if (!answer) this.#page.notice.show(NO_ANSWER, true);
    else if ("state" in answer) this.#take(answer);
    else this.#page.notice.show(answer.error, true);
  }

  /** @param {FetchState} state */
  #take(state) {
    this.#state = state;
    if (state.offer) {
      Object.assign(this.#page.config, state.offer);
      this.#node.remove();
      this.#on.arrived();
      return;
    }
    this.#draw();
    if (state.state === "running" && !this.#isWatching) this.#watch();
  }

  async #watch() {
    this.#isWatching = true;
    while (this.#state.state === "running") {
      await pause(EVERY);
      const answer = await this.#page.server.ask_fetch?.({}).catch(() => null);
      if (!answer) await pause(RETRY_EVERY); // the server may be away for a while
      else if ("state" in answer) this.#take(answer);
      else this.#take({ ...this.#state, state: "failed", error: answer.error });
    }
    this.#isWatching = false;
  }

  #draw() {
    const state = this.#state;
    const isRunning = state.state === "running";
    const { about, beside, button } = offerWords(state, this.#page.shownRun.isOfAwaited);
    this.#about.replaceChildren(element("b", "", about), ` ${beside}`);
    const far = fetchedWords(state);
    if (this.#far.textContent !== far) this.#far.textContent = far;
    this.#far.hidden = !far;
    this.#far.classList.toggle("is-error", state.state === "failed");
    this.#bar.hidden = !isRunning && !state.done;
    this.#bar.value = fetchedShare(state);
    this.#get.hidden = isRunning || !state.mayFetch;
    this.#get.textContent = button;
    this.#stop.hidden = !isRunning || !state.mayFetch;
  }
}
