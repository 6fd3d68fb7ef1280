// Parts of the page that are imported at their first use.

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
