// Elements: how they are made and found, and menus that close.

/**
 * A new element.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {string} [className]
 * @param {string} [text]
 */
export function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
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
  const found = root.querySelector(selector);
  if (!(found instanceof (kind ?? HTMLElement))) throw new Error(`the page lacks ${selector}`);
  return /** @type {Kind} */ (found);
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
 * @param {Event} event
 * @param {string} selector
 */
export function closest({ target }, selector) {
  const found = target instanceof Element ? target.closest(selector) : null;
  return found instanceof HTMLElement ? found : null;
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
    if (menu.contains(document.activeElement)) menu.querySelector("summary")?.focus();
    menu.open = false;
    return wasOpen;
  };
}

/**
 * A dialog that its button and a press beside it close: inside it, a press lands on what it holds.
 * @param {ParentNode} root
 * @param {string} selector
 */
export function dialogOf(root, selector) {
  const dialog = find(root, selector, HTMLDialogElement);
  const close = () => dialog.close();
  dialog.addEventListener("click", ({ target }) => { if (target === dialog) close(); });
  find(dialog, "button").addEventListener("click", close);
  return dialog;
}
