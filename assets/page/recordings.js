// Recordings: fetched from the server's folder, opened from a file, saved to one.

import { digestOf } from "./digest.js";

const NOT_HERE = "This browser cannot unpack recordings; open the .json form of one.";

/** The recordings that ship with the page: `urls` by name. Each is fetched once. */
export function createShelf(urls) {
  const traces = new Map();
  const has = (name) => Object.hasOwn(urls, name);
  function take(name) {
    if (!traces.has(name)) {
      const coming = fetched(urls[name]);
      coming.catch(() => traces.delete(name)); // another try may do better
      traces.set(name, coming);
    }
    return traces.get(name);
  }
  return {
    has, take,
    first: (...names) => names.find((name) => name && has(name)) ?? Object.keys(urls)[0] ?? null,
    /** So that they are at hand when the network is not. */
    takeAll() { for (const name of Object.keys(urls)) take(name).catch(() => {}); },
  };
}

async function fetched(url) {
  const answer = await fetch(new URL(url, document.baseURI));
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const bytes = new Uint8Array(await answer.arrayBuffer());
  return JSON.parse(await unpacked(bytes));
}

async function unpacked(bytes) {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return new TextDecoder().decode(bytes);
  if (!globalThis.DecompressionStream) throw new Error(NOT_HERE);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/**
 * What the server makes of a file: `{ trace }` or `{ error }`. `opened` is the server's function;
 * no more than a byte too many is sent, so that it can say what is wrong with a vast file.
 */
export async function readFile(file, opened, most) {
  const address = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file.slice(0, most + 1));
  });
  return opened({ packed: address.split(",")[1] ?? "" });
}

/** Hand a trace to the visitor as a file, gzipped if the browser can and `packed` asks. */
export async function saveTrace({ schema, header, rounds, end }, packed) {
  const digest = await digestOf({ header, rounds, end });
  const text = JSON.stringify({ schema, header, rounds, end, ...(digest ? { digest } : {}) });
  const zip = packed && globalThis.CompressionStream;
  let blob = new Blob([text], { type: "application/json" });
  if (zip) blob = await new Response(blob.stream().pipeThrough(new CompressionStream("gzip"))).blob();
  saveBlob(blob, `${fileStem(header)}.json${zip ? ".gz" : ""}`);
}

/** A name that says when the run was made. */
export function fileStem(header) {
  const when = /^[\d-]{10}T[\d:]{8}/.exec(header.date)?.[0] ?? "run";
  return `specviz-${when.replace("T", "-").replaceAll(":", "")}`;
}

export function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
