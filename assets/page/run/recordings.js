// The recordings in the server's folder.

import { asTrace } from "specviz/facts/trace.js";
import { once } from "specviz/dom/dom.js";

const NOT_HERE = "This browser cannot unpack recordings; open the .json form of one.";

/** The recordings that come with the page. Each is fetched once. */
export class Recordings {
  #fetched;

  /** @param {Record<string, string>} urls by name */
  constructor(urls) {
    const entries = Object.entries(urls).map(([name, url]) => [name, once(() => fetched(url))]);
    this.#fetched = Object.fromEntries(entries);
  }

  /** @param {string} name */
  has(name) {
    return Object.hasOwn(this.#fetched, name);
  }

  /**
   * The first of these names that has a recording, or else the name of the first recording.
   * @param {(string | null | undefined)[]} names
   */
  first(...names) {
    return names.find((name) => name && this.has(name)) ?? Object.keys(this.#fetched)[0] ?? null;
  }

  /** @param {string} name */
  fetch(name) {
    return this.#fetched[name]();
  }

  /** Fetch all of them, in case the network is gone later. */
  fetchAll() {
    for (const name of Object.keys(this.#fetched)) this.fetch(name).catch(() => {});
  }
}

/** @type {(url: string) => Promise<Trace>} */
async function fetched(url) {
  const answer = await fetch(new URL(url, document.baseURI));
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const bytes = new Uint8Array(await answer.arrayBuffer());
  return asTrace(JSON.parse(await unpacked(bytes)));
}

/** @param {Uint8Array<ArrayBuffer>} bytes gzipped or not */
async function unpacked(bytes) {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return new TextDecoder().decode(bytes);
  if (!globalThis.DecompressionStream) throw new Error(NOT_HERE);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
