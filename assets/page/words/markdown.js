// Markdown as it streams: what each letter of an answer is, known from the letters before it alone, so
// that nothing that stands there changes later. Its signs stay in the text: tokens carry their marks.

/**
 * What a letter is: plain text, code, a heading, in bold, a sign of Markdown itself, or what stands
 * behind a fence, such as the name of a language.
 * @typedef {"" | "code" | "head" | "strong" | "sign" | "info"} Kind
 */

/**
 * What a line is to a block of code: none of it, the fence that opens it, a line in it, or the fence
 * that closes it.
 * @typedef {"" | "open" | "code" | "close"} Block
 */

/**
 * The state of the reader. line: how its line has begun so far, null behind that; ticks: backticks just
 * read; isFenced, isCode: in a block of code or in a line of it; isInfo: in the line that opens a block.
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
 * A part of a token. block: of its line, as far as the line is known behind the piece.
 * @typedef {{ text: string, kind: Kind, block: Block }} Piece
 */

/** The start of an answer. @type {Readonly<Reading>} */
export const START = Object.freeze({
  line: "", ticks: 0, isFenced: false, isInfo: false, isCode: false, isStrong: false, isHead: false,
});

const FENCE = 3; // backticks that begin and end a block of code
const MAX_INDENT = 3; // blanks before a fence or a heading; more of them are code

/**
 * A token's text in pieces of one kind each; every line break is a piece of its own.
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
 * The current line as a part of a block of code, as far as it is known.
 * @param {Readonly<Reading>} reading
 * @returns {Block}
 */
export function blockOf({ isFenced, isInfo }) {
  if (isInfo) return isFenced ? "open" : "close";
  return isFenced ? "code" : "";
}

/**
 * The kind of a letter; `state` goes on behind it.
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

// A backtick at the beginning of a line: the third of them begins or ends a block. Until then they
// count as those of code in the line.
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

// Tokens that a chat template sets, such as the end of a turn; a tag of HTML is none.
const SIGN = String.raw`<([|｜])[\w▁-]{1,40}\1>|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn)>`;
const ONE_SIGN = new RegExp(`^(?:${SIGN})$`);
const SIGNS = new RegExp(SIGN, "g");

/** Whether a token is a sign of a chat template. @param {string} text */
export const isSpecial = (text) => ONE_SIGN.test(text.trim());

/**
 * The signs of chat templates in a text, each once: a tokenizer that has them takes them for tokens of
 * its own, whoever has written them.
 * @type {(text: string) => string[]}
 */
export const signsIn = (text) => [...new Set(text.match(SIGNS) ?? [])];
