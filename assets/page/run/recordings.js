// Recordings: fetched from the server's folder, opened from a file, saved to one. Visitors' files go to the
// server as they are, so that nothing has to unpack them there.

import { digestOf } from "specviz/facts/digest.js";
import { asTrace } from "specviz/facts/trace.js";
import { element, once } from "specviz/dom/dom.js";

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
   * The first of these names that a recording has, or else that of the first recording.
   * @param {(string | null | undefined)[]} names
   */
  first(...names) {
    return names.find((name) => name && this.has(name)) ?? Object.keys(this.#fetched)[0] ?? null;
  }

  /** @param {string} name */
  fetch(name) {
    return this.#fetched[name]();
  }

  /** So that they are at hand when the network is not. */
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

/** A trace without what the page may have added to it. @type {(trace: Trace) => Trace} */
export function plain({ schema, header, rounds, end }) {
  return { schema, header, rounds, end };
}

/**
 * Hand a trace to the visitor as a file, gzipped if the browser can and `packed` asks.
 * @type {(trace: Trace, packed: boolean) => Promise<void>}
 */
export async function saveTrace(trace, packed) {
  const digest = await digestOf(trace);
  const text = JSON.stringify({ ...plain(trace), ...(digest ? { digest } : {}) });
  const zip = packed && "CompressionStream" in globalThis;
  let blob = new Blob([text], { type: "application/json" });
  if (zip) blob = await new Response(blob.stream().pipeThrough(new CompressionStream("gzip"))).blob();
  saveBlob(blob, `${fileStem(trace.header)}.json${zip ? ".gz" : ""}`);
}

/** A name that says when the run was made. @param {Header} header */
export function fileStem(header) {
  const when = /^[\d-]{10}T[\d:]{8}/.exec(header.date)?.[0] ?? "run";
  return `specviz-${when.replace("T", "-").replaceAll(":", "")}`;
}

/** @type {(blob: Blob, name: string) => void} */
export function saveBlob(blob, name) {
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * The server with the functions that read files, if it says where it reads them.
 * @type {(server: Server, address: string | undefined) => Server}
 */
export function withFiles(server, address) {
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
