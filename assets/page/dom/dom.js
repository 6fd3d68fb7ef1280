// Elements: making and finding them, closing menus and dialogs, and loading things later.

/**
 * Properties of an element. `style` and `dataset` are objects; names with a hyphen are attributes.
 * @typedef {Record<string, any>} Given
 */
/** The content of an element, or properties for it. @typedef {string | Node | Given} Content */

/**
 * A new element. A text only ever becomes a text node.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {string} [className]
 * @param {...Content} content
 */
export function element(name, className, ...content) {
  const node = document.createElement(name);
  if (node instanceof HTMLButtonElement) node.type = "button";
  if (className) node.className = className;
  for (const part of content) {
    if (typeof part === "string" || part instanceof Node) node.append(part); else give(node, part);
  }
  return node;
}

/** @type {(node: HTMLElement, given: Given) => void} */
function give(node, { style = {}, dataset = {}, ...properties }) {
  for (const [name, value] of Object.entries(style)) node.style.setProperty(name, String(value));
  Object.assign(node.dataset, dataset);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "role" || name.includes("-")) node.setAttribute(name, String(value));
    else Object.assign(node, { [name]: value });
  }
}

/**
 * A table whose first column names its rows.
 * @param {string} className
 * @param {string[]} head
 * @param {Content[][]} rows  of cells
 */
export function table(className, head, rows) {
  const column = (/** @type {string} */ name) =>
    (name ? element("th", "", { scope: "col" }, name) : element("td"));
  const line = (/** @type {Content[]} */ [name, ...cells]) => {
    const head = element("th", "", { scope: "row" }, name);
    return element("tr", "", head, ...cells.map((cell) => element("td", "", cell)));
  };
  return element("table", className, element("tr", "", ...head.map(column)), ...rows.map(line));
}

/**
 * A section with its title.
 * @type {(title: string, ...content: Content[]) => HTMLElement}
 */
export const titled = (title, ...content) => element("section", "", element("h3", "", title), ...content);

/**
 * A shape of a drawing in SVG.
 * @type {(name: string, attributes: Record<string, string | number>) => SVGElement}
 */
export function shape(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  return node;
}

/**
 * The first element below `root` that matches the selector. Throws if there is none of this kind.
 * @template {HTMLElement} [Kind=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => Kind} [kind]
 */
export function find(root, selector, kind) {
  const node = root.querySelector(selector);
  if (!(node instanceof (kind ?? HTMLElement))) throw new Error(`the page lacks ${selector}`);
  return /** @type {Kind} */ (node);
}

/**
 * All elements of this kind below `root` that match the selector.
 * @template {HTMLElement} Kind
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => Kind} kind
 */
export function findAll(root, selector, kind) {
  const isKind = /** @type {(node: Element) => node is Kind} */ ((node) => node instanceof kind);
  return [...root.querySelectorAll(selector)].filter(isKind);
}

/**
 * The closest element around an event's target that matches the selector, or null.
 * @type {(event: Event, selector: string) => HTMLElement | null}
 */
export function closest({ target }, selector) {
  const node = target instanceof Element ? target.closest(selector) : null;
  return node instanceof HTMLElement ? node : null;
}

/**
 * Make a click outside a menu close it. Returns a function that also closes it, keeps the focus at the menu,
 * and returns whether it was open.
 * @param {HTMLDetailsElement} menu
 */
export function closable(menu) {
  document.addEventListener("click", ({ target }) => {
    if (!(target instanceof Node && menu.contains(target))) menu.open = false;
  });
  return () => {
    const wasOpen = menu.open;
    if (wasOpen && menu.contains(document.activeElement)) menu.querySelector("summary")?.focus();
    menu.open = false;
    return wasOpen;
  };
}

/**
 * Make a dialog's close button and a click on its backdrop close it. A click inside hits an element of its
 * content.
 * @param {HTMLDialogElement} dialog
 */
export function closing(dialog) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || closest(event, ".sv-close, [data-close]")) dialog.close();
  });
}

/**
 * Open a dialog at its beginning: a browser would scroll to its first button or link.
 * @param {HTMLDialogElement} dialog
 */
export function openAtTop(dialog) {
  const heading = dialog.querySelector("h2");
  if (heading) heading.tabIndex = -1;
  dialog.showModal();
  heading?.focus({ preventScroll: true });
  dialog.scrollTop = 0;
}

/**
 * A function that fetches a value at its first use, and again after a failure.
 * @template Value
 * @param {() => Promise<Value>} fetch
 * @returns {() => Promise<Value>}
 */
export function once(fetch) {
  let coming = /** @type {Promise<Value> | null} */ (null);
  return () => (coming ??= fetch().catch((error) => { coming = null; throw error; }));
}

/** @param {number} time  ms */
export const pause = (time) => new Promise((resume) => setTimeout(resume, time));

/** Whether a visitor prefers reduced motion. */
export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/**
 * Add a script or a style sheet to the page; kept once it has loaded.
 * @type {(node: HTMLScriptElement | HTMLLinkElement) => Promise<void>}
 */
export const loaded = (node) => new Promise((resolve, reject) => {
  node.onload = () => resolve();
  node.onerror = () => reject(new Error(`${node.tagName} did not load`));
  document.head.append(node);
});

let attempts = 0;
/** Modules whose import has failed. @type {Set<string>} */
const failed = new Set();

/**
 * Import a module, by its name below "specviz/".
 *
 * Some browsers remember a failed import for as long as the page is open, also of a module that the named one
 * imports. After a failure the module is therefore requested under a new address, and so are the modules that
 * it imports and that the page did not begin with: the server writes the new addresses into the modules.
 * @template {keyof Parts} Name
 * @param {Name} name
 * @returns {Promise<Parts[Name]>}
 */
export async function importPart(name) {
  if (failed.has(name)) {
    attempts += 1;
    return import(new URL(`../again/${attempts}/${name}`, import.meta.url).href);
  }
  try {
    return await import(`specviz/${name}`);
  } catch (error) {
    failed.add(name);
    throw error;
  }
}
