// Storage of the tab, which a reload keeps, and of the browser, for another visit. Storage may be forbidden
// or too small.

export const SWEEP = "specviz-sweep";

/** @type {(name: string, value: unknown) => void} */
export function keep(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch (error) {
    console.info("specviz: too large to be kept:", error);
  }
}

/** The value that the tab keeps under a name, or null. @type {(name: string) => any} */
export function kept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name) ?? "null");
  } catch {
    return null;
  }
}

/** The same value, which is then removed. @type {(name: string) => any} */
export function taken(name) {
  const value = kept(name);
  if (value) sessionStorage.removeItem(name);
  return value;
}

/** Store a value for another visit. @type {(name: string, value: string) => void} */
export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch (error) {
    console.info("specviz: cannot be remembered:", error);
  }
}

/** The value that the browser keeps under a name, or null. @type {(name: string) => string | null} */
export function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}
