// The server of the page: its questions, and runs, whose news come as a stream.

import { visitorHeaders } from "specviz/run/hub.js";
import { withFiles } from "specviz/run/recordings.js";

const JSON_KIND = { "content-type": "application/json" };
const RUNS = "gradio_api/call/run";
const QUESTIONS = /** @type {const} */ ([
  "missed", "ask_job", "end_job", "stop", "loading", "examine",
  "begin_sampling", "begin_difference", "begin_rerun", "begin_sweep",
]);
const NO_ANSWER = "The server did not take your run: press Run again.";

/** @type {(path: string) => URL} */
const at = (path) => new URL(path, document.baseURI);

/**
 * The server that this page came from.
 * @param {Config} config
 * @returns {Server}
 */
export function serverOf(config) {
  const ask = (/** @type {string} */ name) => async (/** @type {object} */ asked) => {
    const answer = await fetch(at(config.questionsAt + name), {
      method: "POST", headers: JSON_KIND, body: JSON.stringify(asked),
    });
    return answer.json(); // also a refusal says why, as its error
  };
  const questions = Object.fromEntries(QUESTIONS.map((name) => [name, ask(name)]));
  return withFiles(/** @type {Server} */ ({ ...questions, run: beginRun }), config.files);
}

/**
 * Begin a run; its news are received until it ends or the connection does.
 * @type {NonNullable<Server["run"]>}
 */
async function beginRun(asked, { received, refused }) {
  const answer = await fetch(at(RUNS), {
    method: "POST",
    headers: { ...JSON_KIND, ...await visitorHeaders() },
    body: JSON.stringify({ data: [JSON.stringify(asked)] }),
  });
  const begun = await answer.json();
  if (!answer.ok) {
    refused(begun.error ?? NO_ANSWER);
    return;
  }
  const news = new EventSource(at(`${RUNS}/${begun.event_id}`));
  news.addEventListener("generating", ({ data }) => {
    for (const delta of JSON.parse(data)) received(delta);
  });
  news.addEventListener("complete", () => news.close());
  // A browser says the same of a stream that broke, and would ask again for one that is gone.
  news.addEventListener("error", (event) => {
    news.close();
    if (event instanceof MessageEvent) refused(JSON.parse(event.data)?.error ?? NO_ANSWER);
  });
}
