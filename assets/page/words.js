// Sentences and numbers as people read them.

/** @import { Metrics } from "./metrics.js" */

/**
 * @param {number | null | undefined} value
 * @param {number} digits
 */
export const fixed = (value, digits) => (value == null ? "–" : value.toFixed(digits));

/** @param {number | null} value */
export const percent = (value) => (value == null ? "–" : `${Math.round(100 * value)} %`);

/**
 * A token as a word in a sentence: blanks would not be seen.
 * @param {string} text
 */
export function visible(text) {
  if (text === "") return "◌";
  return text.replaceAll("\n", "¶").trim() || "␣";
}

/**
 * @param {number} count
 * @param {string} word
 */
export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

const UNSETTLED = "The first rounds decide little; watch the ratio settle.";
const TOO_SHORT = "A ratio needs two rounds and two tokens in each lane.";

export const FROM_FILE = "opened from a file"; // what the badge says
/** What is said of a run that comes from a visitor's file. */
export const UNVERIFIED = "Times are as the file states them; they cannot be verified.";

/**
 * The verdict in one sentence that goes on from the ratio, as plain when speculation loses.
 * @param {Metrics} m
 * @param {Trace} trace
 * @param {number | null} differAt the first token that differs between the lanes
 * @param {boolean} [isOver] nothing follows what is shown
 */
export function verdict(m, trace, differAt, isOver = false) {
  if (m.speedup === null) return isOver ? "Too short to compare." : "Both lanes are off.";
  const speed = "the speed of the target alone";
  if (m.drafted === 0) return `${speed}: without drafts both lanes are the same loop.`;
  if (m.speedup < 0.97) return `${speed}: here speculation loses.`;
  if (m.speedup < 1.03) return `${speed}: the draft just pays for itself.`;
  const same = trace.header.settings.temperature === 0 && differAt === null;
  return same ? `${speed}, with the same text.` : `${speed}.`;
}

/**
 * Why: what a round costs and what it yields, and the cause if it does not pay.
 * @param {Metrics} m
 * @param {boolean} [isOver] nothing follows what is shown
 */
export function detail(m, isOver = false) {
  if (!m.tau || m.speedup === null) return isOver ? TOO_SHORT : UNSETTLED;
  const price = m.tau / m.speedup;
  const balance = `A round yields ${fixed(m.tau, 2)} tokens for the price of ${fixed(price, 2)} target steps`;
  if (m.drafted === 0) return `${balance}.`;
  if (m.speedup >= 0.97) {
    return `${balance}: a guess costs ${fixed(m.c, 2)} of one and is right ${percent(m.alpha)} of the time.`;
  }
  return `${balance}. ${causeOfLoss(m)}`;
}

/** @param {Metrics} m */
function causeOfLoss(m) {
  if (m.c !== null && m.alpha !== null && m.c >= m.alpha) {
    return `A guess costs ${fixed(m.c, 2)} of a step but only ${percent(m.alpha)} hold: no draft length can win.`;
  }
  const wasted = m.drafted ? (m.drafted - m.counts.accepted) / m.drafted : 0;
  return `The draft is right ${percent(m.alpha)} of the time and ${percent(wasted)} of its guesses are wasted: `
    + "try fewer per round.";
}

/**
 * The emitted tokens of both lanes: how many can be compared, and where they first differ.
 * @typedef {{ compared: number, differAt: number | null }} Comparison
 */

/**
 * @param {Round[]} rounds
 * @returns {Comparison}
 */
export function comparison(rounds) {
  const [ours, theirs] = ["speculative", "baseline"].map((lane) =>
    rounds.filter((round) => round.lane === lane).flatMap((round) => round.emitted));
  const compared = Math.min(ours.length, theirs.length);
  const differAt = ours.slice(0, compared).findIndex((token, i) => token.id !== theirs[i].id);
  return { compared, differAt: differAt < 0 ? null : differAt };
}

/**
 * Whether both lanes wrote the same, in one sentence.
 * @param {Comparison} comparison
 * @param {Trace} trace
 */
export function sameness({ compared, differAt }, trace) {
  if (!compared) return "";
  if (trace.header.settings.temperature !== 0) {
    return "Both lanes draw at random from the same distribution, so their texts may differ.";
  }
  if (differAt === null) return `${compared}/${compared} tokens identical to the baseline.`;
  const known = trace.end?.divergence;
  const margin = known?.index === differAt && known.margin != null
    ? `, where the target's first two choices were ${fixed(known.margin, 3)} nats apart` : "";
  return `Identical for ${plural(differAt, "token")}, then the lanes part${margin}.`;
}

/** @type {Partial<Record<EndReason, string>>} */
const REASONS = {
  eos: "end of text", context: "context full", stop: "stop string", stopped: "stopped",
};

/**
 * What a lane has written, and why it ended if it did before its length.
 * @param {number} count
 * @param {number | null} drafted null in a lane that never drafts
 * @param {EndReason} [reason]
 */
export function written(count, drafted, reason) {
  const drafts = drafted === null ? "" : `${drafted} drafted, `;
  const ended = reason && REASONS[reason];
  return `${drafts}${count} written${ended ? ` · ${ended}` : ""}`;
}

/**
 * One sentence about a round, to be read aloud.
 * @param {Round} round
 */
export function spoken(round) {
  const count = (/** @type {Outcome} */ outcome) =>
    round.drafted.filter((token) => token.outcome === outcome).length;
  const drafted = round.drafted.length;
  const own = round.emitted[round.emitted.length - 1];
  const word = own ? visible(own.text) : "";
  const number = `Round ${round.index + 1}`;
  if (!drafted) return `${number}: no guesses, the target wrote ${word}.`;
  if (own?.outcome === "bonus") {
    return `${number}: ${drafted === 1 ? "the guess" : `all ${drafted} guesses`} accepted, ${word} came free.`;
  }
  const ignored = count("ignored") ? `, ${count("ignored")} ignored` : "";
  const judged = `${count("accepted")} of ${drafted} guesses accepted`;
  return own?.outcome === "corrected"
    ? `${number}: ${judged}, 1 rejected${ignored}, the target wrote ${word} instead.`
    : `${number}: ${judged}${ignored}, and the text ends.`;
}

/**
 * Where and with what a run was made.
 * @param {Header} header
 */
export function provenance(header) {
  const torch = header.versions?.torch?.split("+")[0];
  const processor = header.processor ? ` · ${header.processor}` : "";
  const threads = header.device === "CPU" ? ` · ${plural(header.threads, "thread")}` : "";
  const when = new Date(header.date);
  const date = Number.isNaN(when.valueOf()) ? "" :
    ` · ${when.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}`;
  return `${header.device}${processor}${threads} · ${header.dtype}${torch ? ` · torch ${torch}` : ""}${date}`;
}

/** @type {Record<string, string>} */
const GUESSERS = {
  model: "a small model guesses ahead",
  ngram: "guesses are copied from the text so far",
  "early-exit": "the target’s own first layers guess ahead",
};

/**
 * Who guesses in the lane with drafts, and who judges.
 * @param {Settings} settings
 */
export function guesser({ drafter, gamma }) {
  const who = gamma ? GUESSERS[drafter] : null;
  return who ? `${who}, one pass of the target judges` : "no guesses: it does what the other lane does";
}
