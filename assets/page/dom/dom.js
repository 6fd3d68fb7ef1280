// Elements: how they are made and found, menus and dialogs that close, and what comes later.

/**
 * Properties of an element; those of `style` and `dataset` one by one, names with a hyphen are attributes.
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
 * A part of a page with its title.
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
 * The first element below `root` that the selector fits. Throws if there is none of this kind.
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
 * All elements of this kind below `root` that the selector fits.
 * @template {HTMLElement} Kind
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => Kind} kind
 */
export function findAll(root, selector, kind) {
  const isKind = /** @type {(one: Element) => one is Kind} */ ((one) => one instanceof kind);
  return [...root.querySelectorAll(selector)].filter(isKind);
}

/**
 * The element that an event happened in or on, if the selector fits one.
 * @type {(event: Event, selector: string) => HTMLElement | null}
 */
export function closest({ target }, selector) {
  const node = target instanceof Element ? target.closest(selector) : null;
  return node instanceof HTMLElement ? node : null;
}

/**
 * Has a click beside a menu close it. Returns a function that closes it too, and tells whether it
 * was open; the keyboard's place is not lost then.
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
 * Have a dialog's button to close and a press beside it close it: inside it, a press lands on what it holds.
 * @param {HTMLDialogElement} dialog
 */
export function closing(dialog) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || closest(event, ".sv-close, [data-close]")) dialog.close();
  });
}

/**
 * Open a dialog that is read from its beginning: a browser would scroll to the first button or link in it.
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
 * What is fetched at its first use, and after a failure once more.
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

/** Whether a visitor wants nothing to move. */
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
