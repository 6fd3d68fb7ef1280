// The server of the page: requests, and runs, whose results come as a stream. Visitors' files are sent
// unchanged.

const JSON_KIND = { "content-type": "application/json" };
const RUN = "run";
const EVENT = "data: ";
const EVENT_END = "\n\n";
const REQUESTS = /** @type {const} */ ([
  "missed", "ask_job", "end_job", "stop", "loading", "examine",
  "begin_fetch", "stop_fetch", "ask_fetch",
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
  const ask = (/** @type {string} */ name) => async (/** @type {object} */ body) => {
    const answer = await fetch(at(config.questionsAt + name), {
      method: "POST", headers: JSON_KIND, body: JSON.stringify(body),
    });
    return answer.json(); // also a refusal says why, as its error
  };
  const requests = Object.fromEntries(REQUESTS.map((name) => [name, ask(name)]));
  return withFiles(/** @type {Server} */ ({ ...requests, run: beginRun }), config.files);
}

/**
 * Begin a run; its deltas are received until it ends or the connection does.
 * @type {NonNullable<Server["run"]>}
 */
async function beginRun(wish, { received, refused }) {
  const answer = await fetch(at(RUN), {
    method: "POST",
    headers: { ...JSON_KIND, ...await visitorHeaders() },
    body: JSON.stringify(wish),
  });
  if (!answer.ok || !answer.body) {
    const refusal = await answer.json().catch(() => ({}));
    refused(refusal.error ?? NO_ANSWER);
    return;
  }
  try {
    await readEvents(answer.body, received);
  } catch (error) {
    // The store notices the silence and asks the server for the missed deltas.
    console.info("specviz: the connection of a run broke:", error);
  }
}

/**
 * Read a stream of server-sent events with one line of JSON each.
 * @type {(body: ReadableStream<Uint8Array<ArrayBuffer>>, received: (value: any) => void) => Promise<void>}
 */
async function readEvents(body, received) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split(EVENT_END);
    text = events.pop() ?? "";
    for (const event of events) received(JSON.parse(event.slice(EVENT.length)));
  }
}

/**
 * The server with the functions that send files, if it has an address for them.
 * @type {(server: Server, address: string | undefined) => Server}
 */
function withFiles(server, address) {
  if (!address) return server;
  const read = async (/** @type {string} */ form, /** @type {Blob} */ file) => {
    const answer = await fetch(new URL(address + form, document.baseURI), {
      method: "POST", body: file, headers: { "content-type": "application/octet-stream" },
    });
    return answer.json(); // also a refusal says why, as its error
  };
  return Object.assign(Object.create(server), {
    opened: (/** @type {Blob} */ file) => read("trace", file),
    take_away: read,
    find_prompts: (/** @type {Blob} */ file, /** @type {string} */ name) =>
      read(/\.[ct]sv$/i.test(name) ? "prompts-csv" : "prompts", file),
  });
}

// On Hugging Face's hub a Space is in a frame. On ZeroGPU, the hub provides the headers that charge a run to
// the visitor who is signed in there. The messages are those of @gradio/client.
const HUB = "https://huggingface.co";
const OFFERS = "supports-zerogpu-headers";
const ASKS = "zerogpu-headers";
const PATIENCE = 3000; // ms, for an answer

let isOffered = false;

const isFramedByHub = () => window.parent !== window && location.hostname.endsWith(".hf.space");

/** Ask the hub whether it provides headers. */
export function greetHub() {
  if (!isFramedByHub()) return;
  addEventListener("message", ({ data, origin }) => {
    if (origin === HUB && data === OFFERS) isOffered = true;
  });
  window.parent.postMessage(OFFERS, HUB);
}

/** The headers for a run of this visitor. @returns {Promise<Record<string, string>>} */
export async function visitorHeaders() {
  if (!isOffered) return {};
  const channel = new MessageChannel();
  const answer = new Promise((resolve) => {
    channel.port1.onmessage = ({ data }) => resolve(data);
    setTimeout(() => resolve(null), PATIENCE);
  });
  window.parent.postMessage(ASKS, HUB, [channel.port2]);
  const headers = await answer;
  channel.port1.close();
  return headers instanceof Map ? Object.fromEntries(headers) : (headers ?? {});
}
