// Words about a run whose server speculated itself and was only watched.

import { hasBaseline } from "specviz/facts/lanes.js";
import { reportsDrafts } from "specviz/facts/metrics.js";
import { fixed, percent, visible } from "specviz/words/words.js";

const NOT_TOLD = "The server itself drafts and judges. It does not report p, q, the draws or the rejected "
  + "tokens, only how many there are.";
const STREAMS = "Times are measured by the client from chunk to chunk, so they include the network and the "
  + "server’s other users.";
const UNTOLD = "not reported by the server";

export const GUESSER = "the server guesses and judges";

/**
 * The items of the strip that replace a drafter and its settings.
 * @type {(header: Header) => Item[]}
 */
export function sourceItems(header) {
  /** @type {Item[]} */
  const items = [{ name: "source", text: `${header.source}, watched`, title: `${NOT_TOLD} ${STREAMS}` }];
  const { baseline } = header.versions;
  if (!hasBaseline(header)) items.push({ name: "baseline", text: "no baseline measured" });
  else if (baseline && baseline !== header.source) {
    items.push({ name: "baseline", text: `baseline ${baseline}` });
  }
  return items;
}

/**
 * The verdict, which continues the ratio.
 * @param {Metrics} m
 * @param {Header} header
 * @param {boolean} isOver  whether no more rounds follow
 */
export function watchedVerdict(m, header, isOver) {
  if (!hasBaseline(header)) return "No baseline was measured.";
  if (m.speedup === null) return isOver ? "Too short to compare." : "The lanes run one after the other.";
  if (!isOver) return "the speed of the target alone, so far.";
  return "the speed of the target alone: two deployments, measured.";
}

/** The figures of the run in words. @type {(m: Metrics, rounds: Round[], trace: Trace) => string} */
export function watchedDetail(m, rounds, trace) {
  if (!m.tau) return STREAMS;
  const isReported = reportsDrafts(rounds.filter(({ lane }) => lane !== "baseline"));
  const drafts = isReported
    ? `${percent(m.alpha)} of the judged guesses are accepted`
    : `how many tokens it drafts is ${UNTOLD}`;
  const yields = `A pass yields ${fixed(m.tau, 2)} tokens; ${drafts}.`;
  const figures = `${yields}${counted(trace, rounds, m, isReported)} ${STREAMS}`;
  if (hasBaseline(trace.header)) return figures;
  return `${figures} A ratio needs a second server that runs the target alone.`;
}

// Whether the server's own counters agree.
/** @type {(trace: Trace, rounds: Round[], m: Metrics, isReported: boolean) => string} */
function counted({ end, rounds: all }, rounds, m, isReported) {
  const counters = end?.counted;
  if (!counters || rounds.length < all.length) return "";
  const watchedRounds = rounds.filter(({ lane }) => lane !== "baseline");
  const steps = watchedRounds.filter(({ drafted }) => drafted.length).length;
  const last = watchedRounds[watchedRounds.length - 1];
  const cut = last?.drafted.filter(({ outcome }) => outcome === "ignored").length ?? 0;
  const more = counters.accepted - m.counts.accepted;
  if (isReported && counters.steps === steps && counters.drafted === m.drafted && more >= 0 && more <= cut) {
    return " Its own counters agree.";
  }
  const others = isReported ? ", so others may have used it too" : "";
  return ` Its own counters rose by ${counters.drafted} drafted and ${counters.accepted} accepted tokens `
    + `meanwhile${others}.`;
}

/**
 * The reason of a token, as far as the server reports it.
 * @type {(token: ShownToken, at: Place) => string}
 */
export function watchedReason(token, { round, position }) {
  const word = `“${visible(token.text)}”`;
  if (round.lane === "baseline") return `One pass of the target alone wrote one token: ${word}.`;
  switch (token.outcome) {
    case "accepted":
      return `The server drafted ${word}, and its target accepted it. It does not report the probabilities.`;
    case "rejected":
      return `The guess at position ${position + 1} was rejected. The server does not report its token.`;
    case "ignored":
      return "A guess that was never judged, or that the end of the text cut off. The server does not report "
        + "which it was.";
    case "corrected":
      return `The target’s own token ${word}, instead of the guess that it rejected.`;
    case "untold":
      return `${word} ends a chunk of the stream, which counts as one pass: after a rejected guess it is a `
        + "correction, else a bonus token. The server does not report which.";
    default:
      return unguessedReason(round, word);
  }
}

/** The reason of a token that was not guessed. @type {(round: Round, word: string) => string} */
function unguessedReason({ index, drafted }, word) {
  if (index === 0) {
    return `The first token, ${word}, came from the prefill: nothing was drafted before it.`;
  }
  if (drafted.length) {
    return `All ${drafted.length} guesses of this pass were accepted, and ${word} came for free.`;
  }
  return `Nothing was guessed in this pass: the target wrote one token, ${word}.`;
}
