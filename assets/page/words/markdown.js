// Markdown as it streams: the kind of each letter of an answer, known from the letters before it alone, so
// that nothing changes later. The Markdown signs stay in the text, since tokens carry their marks.

/**
 * The kind of a letter: plain text, code, heading, bold, a sign of Markdown itself, or the info string
 * after a fence, such as the name of a language.
 * @typedef {"" | "code" | "head" | "strong" | "sign" | "info"} Kind
 */

/**
 * The role of a line in a code block: none, the opening fence, a line inside, or the closing fence.
 * @typedef {"" | "open" | "code" | "close"} Block
 */

/**
 * The state of the reader. line: the beginning of the current line, null once the line can be neither fence
 * nor heading; ticks: the number of backticks just read; isFenced, isCode: in a code block, in inline code;
 * isInfo: in the line that opens a block.
 * @typedef {object} Reading
 * @property {string | null} line
 * @property {number} ticks
 * @property {boolean} isFenced
 * @property {boolean} isInfo
 * @property {boolean} isCode
 * @property {boolean} isStrong
 * @property {boolean} isHead
 */

/**
 * A part of a token. block: of its line, as far as it is known after the piece.
 * @typedef {{ text: string, kind: Kind, block: Block }} Piece
 */

/** The start of an answer. @type {Readonly<Reading>} */
export const START = Object.freeze({
  line: "", ticks: 0, isFenced: false, isInfo: false, isCode: false, isStrong: false, isHead: false,
});

const FENCE = 3; // backticks that open and close a code block
const MAX_INDENT = 3; // blanks before a fence or a heading; a deeper indent is code

/**
 * A token's text in pieces of one kind each; each line break is its own piece.
 * @type {(text: string, begun: Readonly<Reading>) => { pieces: Piece[], after: Reading }}
 */
export function read(text, begun) {
  const state = { ...begun };
  const pieces = /** @type {Piece[]} */ ([]);
  const letters = [...text];
  letters.forEach((letter, i) => {
    const before = blockOf(state);
    const kind = kindOf(letter, letters[i + 1], letters[i - 1], state);
    const block = letter === "\n" ? before : blockOf(state);
    const last = pieces[pieces.length - 1];
    const joins = last && last.kind === kind && letter !== "\n" && !last.text.endsWith("\n");
    if (joins) {
      last.text += letter;
      last.block = block;
    } else pieces.push({ text: letter, kind, block });
  });
  return { pieces, after: state };
}

/**
 * The role of the current line in a code block, as far as it is known.
 * @param {Readonly<Reading>} reading
 * @returns {Block}
 */
export function blockOf({ isFenced, isInfo }) {
  if (isInfo) return isFenced ? "open" : "close";
  return isFenced ? "code" : "";
}

/**
 * The kind of a letter; advances `state`.
 * @param {string} letter
 * @param {string | undefined} next in its token
 * @param {string | undefined} previous in its token
 * @param {Reading} state
 * @returns {Kind}
 */
function kindOf(letter, next, previous, state) {
  if (letter === "\n") return newLine(state);
  const isTick = letter === "`";
  const begun = state.line;
  state.ticks = isTick ? state.ticks + 1 : 0;
  if (begun !== null) state.line = begins(begun + letter) ? begun + letter : null;
  if (isTick && begun !== null && state.line !== null) return fenceTick(state);
  if (state.isInfo) return "info";
  if (state.isFenced) return "code";
  if (isTick) { state.isCode = !state.isCode; return "sign"; }
  if (state.isCode) return "code";
  if (letter === "#" && state.line !== null) return "sign";
  if (begun?.endsWith("#") && letter === " ") state.isHead = true;
  if (letter === "*" && (next === "*" || previous === "*")) {
    if (next !== "*") state.isStrong = !state.isStrong;
    return "sign";
  }
  if (state.isHead) return "head";
  return state.isStrong ? "strong" : "";
}

/** Whether a line may still become a fence or a heading. @param {string} line */
const begins = (line) => /^ *(`*|#{0,6})$/.test(line) && line.search(/[^ ]|$/) <= MAX_INDENT;

// A backtick at the beginning of a line: the third one opens or closes a block. Until then they count as
// inline code.
/** @type {(state: Reading) => Kind} */
function fenceTick(state) {
  if (state.ticks < FENCE) {
    if (!state.isFenced) state.isCode = !state.isCode;
  } else if (state.ticks === FENCE) {
    state.isFenced = !state.isFenced;
    state.isInfo = true;
    state.isCode = false;
  }
  return "sign";
}

/** @type {(state: Reading) => Kind} */
function newLine(state) {
  const kind = state.isFenced && !state.isInfo ? "code" : "";
  Object.assign(state, { line: "", ticks: 0, isInfo: false, isCode: false, isHead: false, isStrong: false });
  return kind;
}

// Special tokens of chat templates, such as the end of a turn; HTML tags are not among them.
const SIGN = String.raw`<([|｜])[\w▁-]{1,40}\1>|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn)>`;
const ONE_SIGN = new RegExp(`^(?:${SIGN})$`);
const SIGNS = new RegExp(SIGN, "g");

/** Whether a token is a special token of a chat template. @param {string} text */
export const isSpecial = (text) => ONE_SIGN.test(text.trim());

/**
 * The special tokens of chat templates in a text, each once: a tokenizer that has them reads them as special
 * tokens, also if a visitor typed them.
 * @type {(text: string) => string[]}
 */
export const signsIn = (text) => [...new Set(text.match(SIGNS) ?? [])];
