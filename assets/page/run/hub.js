// On Hugging Face's hub a Space stands in a frame. Where its GPU is lent, the hub tells the headers with
// which a run is charged to the visitor who is signed in there. The messages are those of @gradio/client.

const HUB = "https://huggingface.co";
const OFFERS = "supports-zerogpu-headers";
const ASKS = "zerogpu-headers";
const PATIENCE = 3000; // ms, for an answer

let isOffered = false;

const isFramedByHub = () => window.parent !== window && location.hostname.endsWith(".hf.space");

/** Ask the hub whether it tells headers. */
export function greetHub() {
  if (!isFramedByHub()) return;
  addEventListener("message", ({ data, origin }) => {
    if (origin === HUB && data === OFFERS) isOffered = true;
  });
  window.parent.postMessage(OFFERS, HUB);
}

/** The headers that a run of this visitor has to have. @returns {Promise<Record<string, string>>} */
export async function visitorHeaders() {
  if (!isOffered) return {};
  const channel = new MessageChannel();
  const told = new Promise((resolve) => {
    channel.port1.onmessage = ({ data }) => resolve(data);
    setTimeout(() => resolve(null), PATIENCE);
  });
  window.parent.postMessage(ASKS, HUB, [channel.port2]);
  const headers = await told;
  channel.port1.close();
  return headers instanceof Map ? Object.fromEntries(headers) : (headers ?? {});
}
