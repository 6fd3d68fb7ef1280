// Words about a run whose server speculated by itself and was only watched.

import { hasBaseline } from "specviz/facts/lanes.js";
import { areTold } from "specviz/facts/metrics.js";
import { fixed, percent, visible } from "specviz/words/words.js";

const NOT_TOLD = "The server drafts and judges by itself. It does not tell p, q and the draws, nor what it "
  + "rejected: only how many tokens.";
const STREAMS = "Times are the client’s, from chunk to chunk: the network and the server’s other users "
  + "are in them.";
const UNTOLD = "not told by the server";

export const GUESSER = "the server guesses and judges";

/**
 * The items of the strip in the place of a drafter and its settings.
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
 * The verdict, which goes on from the ratio.
 * @param {Metrics} m
 * @param {Header} header
 * @param {boolean} isOver nothing follows what is shown
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
  const isTold = areTold(rounds.filter(({ lane }) => lane !== "baseline"));
  const drafts = isTold
    ? `${percent(m.alpha)} of the judged guesses are accepted`
    : `how many tokens it drafts is ${UNTOLD}`;
  const yields = `A pass yields ${fixed(m.tau, 2)} tokens; ${drafts}.`;
  const figures = `${yields}${counted(trace, rounds, m, isTold)} ${STREAMS}`;
  if (hasBaseline(trace.header)) return figures;
  return `${figures} Without a second server of the target alone there is no ratio.`;
}

// Whether the server's own counters say the same.
/** @type {(trace: Trace, rounds: Round[], m: Metrics, isTold: boolean) => string} */
function counted({ end, rounds: all }, rounds, m, isTold) {
  const counters = end?.counted;
  if (!counters || rounds.length < all.length) return "";
  const ours = rounds.filter(({ lane }) => lane !== "baseline");
  const steps = ours.filter(({ drafted }) => drafted.length).length;
  const cut = ours[ours.length - 1]?.drafted.filter(({ outcome }) => outcome === "ignored").length ?? 0;
  const more = counters.accepted - m.counts.accepted;
  if (isTold && counters.steps === steps && counters.drafted === m.drafted && more >= 0 && more <= cut) {
    return " Its own counters agree.";
  }
  const others = isTold ? ", so others may have used it too" : "";
  return ` Its own counters moved by ${counters.drafted} drafted and ${counters.accepted} accepted tokens `
    + `meanwhile${others}.`;
}

/**
 * The reason of a token, as far as the server tells.
 * @type {(token: ShownToken, at: Place) => string}
 */
export function watchedReason(token, { round, place }) {
  const word = `“${visible(token.text)}”`;
  if (round.lane === "baseline") return `One pass of the target alone, one token: ${word}.`;
  switch (token.outcome) {
    case "accepted":
      return `The server drafted ${word}, and its target accepted it. With which chances it does not tell.`;
    case "rejected":
      return `The guess at place ${place + 1} was rejected. Which token it was the server does not tell.`;
    case "ignored":
      return "A guess that was never judged, or that the end of the text cut off. The server does not tell "
        + "which it was.";
    case "corrected":
      return `The target’s own token ${word}, in the place of the guess that it rejected.`;
    case "untold":
      return `${word} ends a chunk of the stream, which is taken as one pass: after a rejected guess it is a `
        + "correction, else a bonus token. Which of them the server does not tell.";
    default:
      return untaken(round, word);
  }
}

/** The reason of a token without a guess before it. @type {(round: Round, word: string) => string} */
function untaken({ index, drafted }, word) {
  if (index === 0) {
    return `The first token, ${word}, came from reading the prompt: nothing was drafted before it.`;
  }
  if (drafted.length) {
    return `All ${drafted.length} guesses of this pass were accepted, and ${word} came free.`;
  }
  return `Nothing was guessed in this pass: one token, the target’s own, ${word}.`;
}
