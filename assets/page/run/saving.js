// Runs and other things that a visitor saves as a file.

import { element } from "specviz/dom/dom.js";
import { digestOf } from "specviz/facts/digest.js";

/** A trace with only the fields of its schema. @type {(trace: Trace) => Trace} */
export function plain({ schema, header, rounds, end }) {
  return { schema, header, rounds, end };
}

/**
 * Hand a trace to the visitor as a file, gzipped if the browser can and `packed` asks.
 * @type {(trace: Trace, packed: boolean) => Promise<void>}
 */
export async function saveTrace(trace, packed) {
  const digest = await digestOf(trace);
  const contents = digest ? { ...plain(trace), digest } : plain(trace);
  const blob = new Blob([JSON.stringify(contents)], { type: "application/json" });
  const name = `${fileStem(trace.header)}.json`;
  if (!packed || !("CompressionStream" in globalThis)) {
    saveBlob(blob, name);
    return;
  }
  const zipped = blob.stream().pipeThrough(new CompressionStream("gzip"));
  saveBlob(await new Response(zipped).blob(), `${name}.gz`);
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
