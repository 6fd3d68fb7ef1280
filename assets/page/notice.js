// The line that tells a visitor what happens, what went wrong, and what may be of interest.

const MENTIONED_FOR = 8000; // ms

export function createNotice(node) {
  let hiding = 0;

  function notice(text, isError = false) {
    clearTimeout(hiding);
    node.textContent = text;
    node.hidden = !text;
    node.classList.toggle("is-error", isError);
    node.setAttribute("role", isError ? "alert" : "status");
  }

  /** What need not be read to go on makes way by itself. */
  function mention(text) {
    notice(text);
    hiding = setTimeout(() => notice(""), MENTIONED_FOR);
  }

  return { notice, mention };
}
