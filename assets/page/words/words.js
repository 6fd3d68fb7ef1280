// Sentences and numbers for readers.

import { ALONE, isSeveral, WITH_DRAFTS, writtenBy } from "specviz/facts/lanes.js";
import { drafterKind, verdictKind } from "specviz/facts/vocabulary.js";

/** @type {(value: number | null | undefined, digits: number) => string} */
export const fixed = (value, digits) => (value == null ? "–" : value.toFixed(digits));

/** Tokens per second: a slower lane needs a decimal, or 6 and 4 would not look like a ratio of 1.75. */
const SLOW = 20;

/**
 * Tokens per second, as a figure without its unit.
 * @param {number | null | undefined} rate
 */
export function perSecond(rate) {
  const digits = rate != null && Number(rate.toFixed(1)) < SLOW ? 1 : 0;
  return fixed(rate, digits);
}

/** @param {number | null} value */
export const percent = (value) => (value == null ? "–" : `${Math.round(100 * value)} %`);

/** Spaces in a row that are shown one by one. */
const FEW_SPACES = 4;

/** @param {string} run  of spaces */
const spaces = (run) => (run.length > FEW_SPACES ? `␣×${run.length}` : "␣".repeat(run.length));

/**
 * A token as a word in a sentence. If it has only blanks they are made visible one by one: indentations of
 * different depths are different tokens.
 * @param {string} text
 */
export function visible(text) {
  if (text === "") return "◌";
  const marked = text.replaceAll("\n", "¶");
  if (text.trim() !== "") return marked.trim();
  return marked.replaceAll("\t", "⇥").replace(/\s+/g, spaces);
}

/**
 * A text in quotation marks, on one line; a text that begins with a quotation mark gets no others.
 * @param {string} text
 */
export function quoted(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return /^["“«„]/.test(line) ? line : `“${line}”`;
}

/**
 * The question, or the text that the lanes continue.
 * @param {Pick<Header, "prompt" | "question">} header
 */
export const askedIn = ({ prompt, question }) => question ?? prompt;

/**
 * The text that a lane begins with: empty if it answers a question.
 * @param {Pick<Header, "prompt" | "question">} header
 */
export const begunBy = ({ prompt, question }) => (question == null ? prompt : "");

/**
 * The placeholder of the prompt: for a question where the target answers, else for the beginning of a text.
 * @param {PairModels | undefined} models  of the pair; undefined if nothing is known about it
 * @param {Value | undefined} chat  the setting of the chat template
 */
export function promptHint(models, chat) {
  const answers = chat === "on" || chat === "literal" || (chat !== "off" && models?.chat);
  if (answers) return "Ask something; both lanes answer it";
  if (chat === "off" || models?.chat === false) return "Write the beginning; both lanes continue it";
  return "Ask something, or write the beginning of a text";
}

/**
 * Seconds of a lane's clock, in milliseconds where all of them are short.
 * @param {number} seconds
 * @param {number} longest  the longest of those that are shown side by side
 */
export const duration = (seconds, longest) =>
  (longest < 1 ? `${Math.round(1000 * seconds)} ms` : `${fixed(seconds, 2)} s`);

/**
 * The warning about special tokens of a chat template in a prompt.
 * @param {string[]} signs at least one
 */
export function signsText(signs) {
  const named = signs.slice(0, 3).join(", ") + (signs.length > 3 ? ", …" : "");
  return `The prompt contains ${named}: a model whose chat template has this special token does not read it `
    + "as text, so the text after it may count as another turn, as in transformers and llama.cpp. "
    + "The setting Chat template can send it as text.";
}

/** @type {(count: number, word: string) => string} */
export function plural(count, word) {
  if (count === 1) return `${count} ${word}`;
  const ending = word.endsWith("s") ? "es" : "s";
  return `${count} ${word}${ending}`;
}

/** The note on a run that comes from a visitor's file. */
export const UNVERIFIED = "The times are those in the file; they cannot be verified.";

/** @typedef {ReturnType<typeof comparison>} Comparison */

/**
 * The comparison of both lanes' tokens: how many can be compared, and where they first differ.
 * @param {Round[]} rounds
 */
export function comparison(rounds) {
  const drafted = writtenBy(rounds, WITH_DRAFTS);
  const alone = writtenBy(rounds, ALONE);
  const compared = Math.min(drafted.length, alone.length);
  const differAt = drafted.slice(0, compared).findIndex((token, i) => token.id !== alone[i].id);
  return { compared, differAt: differAt < 0 ? null : differAt };
}

/**
 * Whether both lanes wrote the same, in one sentence.
 * @type {(comparison: Comparison, trace: Trace) => string}
 */
export function sameness({ compared, differAt }, trace) {
  if (!compared) return "";
  const { temperature, verdict } = trace.header.settings;
  const kind = verdictKind(verdict ?? "token");
  if (temperature !== 0 && !kind.exact) {
    return `This text is not the target’s: the verdict ${kind.label} changes its distribution.`;
  }
  if (temperature !== 0 && trace.header.source) {
    return "Both lanes draw at random, so their texts may differ. Whether the server keeps the target’s "
      + "distribution is not checked here.";
  }
  if (temperature !== 0) {
    return "Both draw from the same distribution.";
  }
  if (differAt === null) return `${compared}/${compared} tokens identical to the baseline.`;
  const divergence = trace.end?.divergence;
  const identical = `Identical for ${plural(differAt, "token")}, then they diverge`;
  if (divergence?.index !== differAt || divergence.margin == null) return `${identical}.`;
  const nats = fixed(divergence.margin, 3);
  return `${identical}, where the target's first two choices were ${nats} nats apart.`;
}

/** @type {Partial<Record<EndReason, string>>} */
const REASONS = { eos: "end of text", context: "context full", stop: "stop string", stopped: "stopped" };

/**
 * The tokens that a lane has written, and why it ended.
 * @param {number} count
 * @param {number | null} drafted null in a lane that never drafts
 * @param {EndReason} [reason]
 */
export function written(count, drafted, reason) {
  const drafts = drafted === null ? "" : `${drafted} drafted, `;
  if (reason === "length") return `${drafts}stopped at ${plural(count, "token")}`;
  const ending = reason && REASONS[reason];
  const text = `${drafts}${count} written`;
  return ending ? `${text} · ${ending}` : text;
}

/** One sentence about a round, for screen readers. @param {Round} round */
export function spoken(round) {
  const count = (/** @type {Outcome} */ outcome) =>
    round.drafted.filter((token) => token.outcome === outcome).length;
  const drafted = round.drafted.length;
  const last = round.emitted[round.emitted.length - 1];
  const word = last ? visible(last.text) : "";
  const number = `Round ${round.index + 1}`;
  if (last?.outcome === "untold") {
    const tokens = plural(round.emitted.length, "token");
    return `Step ${round.index + 1}: ${tokens} arrived, the last is ${word}.`;
  }
  if (!drafted) return `${number}: no guesses, the target wrote ${word}.`;
  if (last?.outcome === "bonus") {
    const guesses = drafted === 1 ? "the guess" : `all ${drafted} guesses`;
    return `${number}: ${guesses} accepted, ${word} is the bonus token.`;
  }
  const ignored = count("ignored") ? `, ${count("ignored")} ignored` : "";
  const judged = `${count("accepted")} of ${drafted} guesses accepted`;
  return last?.outcome === "corrected"
    ? `${number}: ${judged}, 1 rejected${ignored}, the target wrote ${word} instead.`
    : `${number}: ${judged}${ignored}, and the text ends.`;
}

/** A day such as "5 Aug 2026"; empty for an invalid date. @param {string} date  ISO 8601 */
export function dayOf(date) {
  const when = new Date(date);
  if (Number.isNaN(when.valueOf())) return "";
  const [, month, day, year] = when.toDateString().split(" ");
  return `${Number(day)} ${month} ${year}`;
}

/** A count with commas between its thousands. @param {number} count */
export function grouped(count) {
  // Intl would load locale data for 30 ms before it formats the first number.
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

const PRODUCTS = { int8: "inputs in 8 bits, as in llama.cpp", fp32: "products in fp32" };

/** The arithmetic of the target's products, the same in all lanes. @param {Header} header */
export function arithmeticOf({ dtype, target }) {
  return target.products ? `${dtype}, ${PRODUCTS[target.products]}` : dtype;
}

/** The machine, the versions and the date of a run. @param {Header} header */
export function provenance(header) {
  const { device, processor, versions, date } = header;
  const dtype = header.source ? "" : arithmeticOf(header); // a server does not report its own
  const torch = versions?.torch?.split("+")[0];
  const joined = (/** @type {(string | undefined)[]} */ parts) => parts.filter(Boolean).join(" · ");
  const machine = joined([device, processor, device === "CPU" ? threadsOf(header) : "", dtype]);
  return { machine, made: ` · ${joined([torch && `torch ${torch}`, dayOf(date)])}` };
}

/**
 * The threads of a pass: of the target alone, and with the draft if that differs.
 * @param {Header} header
 */
export function threadsOf({ lane_threads, threads }) {
  const { [ALONE]: alone, ...others } = lane_threads ?? { [ALONE]: threads };
  const drafted = [...new Set(Object.values(others))].filter((count) => count !== alone);
  return drafted.length ? `${plural(alone, "thread")} alone, ${drafted.join(" or ")} with the draft`
    : plural(alone, "thread");
}

/** The drafter and the verdict of the lane with drafts, in words. @param {Settings} settings */
export function guesser({ drafter, gamma }) {
  if (!gamma || drafter === "none") return drafterKind("none").label;
  return `${drafterKind(drafter).label} + target`;
}

/**
 * The source of a run's guesses, as the first clause of a sentence.
 * @param {Header} header
 */
export function helper(header) {
  const { source, settings } = header;
  if (source) return "the server itself guesses ahead";
  const isNamed = !isSeveral(header) && settings.gamma > 0 && settings.drafter !== "none";
  return isNamed ? drafterKind(settings.drafter).clause : "a helper guesses the next tokens";
}
