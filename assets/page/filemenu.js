// The menu that saves the shown run and opens another.

import { readFile, saveTrace } from "./recordings.js";

const NOT_SENT = "The file did not reach the server; try again.";

/**
 * `trace()` is the shown trace, `opened` the server's function, `most` the bytes that it reads;
 * `show(trace)` and `fail(sentence)` are told what became of a file.
 */
export function createFileMenu(root, { trace, opened, most, show, fail }) {
  const menu = root.querySelector("[data-file-menu]");
  const input = menu.querySelector("[data-open]");
  const close = () => { menu.open = false; };

  for (const button of menu.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => {
      close();
      if (trace()) saveTrace(trace(), button.dataset.save === "packed");
    });
  }
  menu.addEventListener("toggle", () => {
    for (const button of menu.querySelectorAll("[data-needs-run]")) button.disabled = !trace();
  });
  menu.querySelector("[data-choose]").addEventListener("click", () => input.click());
  input.addEventListener("change", async () => {
    const [file] = input.files;
    input.value = ""; // so that the same file can be chosen again
    close();
    if (file) await take(file);
  });
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) close(); });

  async function take(file) {
    try {
      const answer = await readFile(file, opened, most);
      if (answer.trace) show(answer.trace); else fail(answer.error);
    } catch (error) {
      console.info("specviz: a file could not be opened:", error);
      fail(NOT_SENT);
    }
  }

  return { close, take };
}
