// The fingerprint of a trace, the same as that of digest_of() in specviz/runs/trace.py.

/**
 * "sha256:…", or null if the browser offers no hash, which needs https or localhost.
 * @param {Trace} trace
 */
export async function digestOf({ header, rounds, end }) {
  if (!globalThis.crypto?.subtle) return null;
  const bytes = new TextEncoder().encode(canonical({ header, rounds, end }));
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return `sha256:${[...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * JSON with sorted names, no blanks, and every number in the format of a Python float.
 * @type {(value: unknown) => string}
 */
export function canonical(value) {
  if (typeof value === "number") return float(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const fields = Object.entries(value)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, field]) => `${JSON.stringify(name)}:${canonical(field)}`);
  return `{${fields.join(",")}}`;
}

// Both languages write the shortest digits that give the number, but place the point differently.
/** @param {number} value */
function float(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-5 || size >= 1e16)) return value.toExponential();
  const text = String(value);
  return text.includes(".") ? text : `${text}.0`;
}
