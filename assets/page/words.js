// Sentences and numbers as people read them.

export const fixed = (value, digits) => (value == null ? "–" : value.toFixed(digits));
export const percent = (value) => (value == null ? "–" : `${Math.round(100 * value)} %`);
/** A token as a word in a sentence: blanks would not be seen. */
export function visible(text) {
  if (text === "") return "◌";
  return text.replaceAll("\n", "¶").trim() || "␣";
}

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/** The verdict in one sentence that goes on from the ratio, as plain when speculation loses. */
export function verdict(m, trace, parted) {
  if (m.speedup === null) return "Both lanes are off.";
  const speed = "the speed of the target alone";
  if (m.drafted === 0) return `${speed}: without drafts both lanes are the same loop.`;
  if (m.speedup < 0.97) return `${speed}: here speculation loses.`;
  if (m.speedup < 1.03) return `${speed}: the draft just pays for itself.`;
  const same = trace.header.settings.temperature === 0 && parted === null;
  return same ? `${speed}, with the same text.` : `${speed}.`;
}

/** Why: what a round costs and what it yields, and what is to blame if it does not pay. */
export function detail(m) {
  if (!m.tau || m.speedup === null) return "The first rounds decide little; watch the ratio settle.";
  const price = m.tau / m.speedup;
  const trade = `A round yields ${fixed(m.tau, 2)} tokens for the price of ${fixed(price, 2)} target steps`;
  if (m.drafted === 0) return `${trade}.`;
  if (m.speedup >= 0.97) {
    return `${trade}: a guess costs ${fixed(m.c, 2)} of one and is right ${percent(m.alpha)} of the time.`;
  }
  return `${trade}. ${blame(m)}`;
}

function blame(m) {
  if (m.c !== null && m.alpha !== null && m.c >= m.alpha) {
    return `A guess costs ${fixed(m.c, 2)} of a step but only ${percent(m.alpha)} hold: no draft length can win.`;
  }
  const wasted = m.drafted ? (m.drafted - m.counts.accepted) / m.drafted : 0;
  return `The draft is right ${percent(m.alpha)} of the time and ${percent(wasted)} of its guesses are wasted: try fewer per round.`;
}

/** The emitted tokens of both lanes: how many can be compared, and where they first differ. */
export function comparison(rounds) {
  const [ours, theirs] = ["speculative", "baseline"].map((lane) =>
    rounds.filter((round) => round.lane === lane).flatMap((round) => round.emitted));
  const compared = Math.min(ours.length, theirs.length);
  const parted = ours.slice(0, compared).findIndex((token, i) => token.id !== theirs[i].id);
  return { compared, parted: parted < 0 ? null : parted };
}

/** Whether both lanes wrote the same, in one sentence. */
export function sameness({ compared, parted }, trace) {
  if (!compared) return "";
  if (trace.header.settings.temperature !== 0) {
    return "Both lanes draw at random from the same distribution, so their texts may differ.";
  }
  if (parted === null) return `${compared}/${compared} tokens identical to the baseline.`;
  const known = trace.end?.divergence;
  const margin = known?.index === parted && known.margin != null
    ? `, where the target's first two choices were ${fixed(known.margin, 3)} nats apart` : "";
  return `Identical for ${plural(parted, "token")}, then the lanes part${margin}.`;
}

const REASONS = {
  eos: "end of text", context: "context full", stop: "stop string", stopped: "stopped",
};

/** What a lane has written, and why it ended if it did before its length. */
export function written(count, drafted, reason) {
  const drafts = drafted === null ? "" : `${drafted} drafted, `;
  return `${drafts}${count} written${REASONS[reason] ? ` · ${REASONS[reason]}` : ""}`;
}

/** One spoken sentence about a round. */
export function spoken(round) {
  const of = (outcome) => round.drafted.filter((token) => token.outcome === outcome).length;
  const own = round.emitted[round.emitted.length - 1];
  const word = own ? visible(own.text) : "";
  const number = `Round ${round.index + 1}`;
  if (!round.drafted.length) return `${number}: no guesses, the target wrote ${word}.`;
  if (own?.outcome === "bonus") {
    return `${number}: ${round.drafted.length === 1 ? "the guess" : `all ${round.drafted.length} guesses`} accepted, ${word} came free.`;
  }
  const ignored = of("ignored") ? `, ${of("ignored")} ignored` : "";
  const judged = `${of("accepted")} of ${round.drafted.length} guesses accepted`;
  return own?.outcome === "corrected"
    ? `${number}: ${judged}, 1 rejected${ignored}, the target wrote ${word} instead.`
    : `${number}: ${judged}${ignored}, and the text ends.`;
}

/** Where and with what a run was made. */
export function provenance(header) {
  const torch = header.versions?.torch?.split("+")[0];
  const processor = header.processor ? ` · ${header.processor}` : "";
  const threads = header.device === "CPU" ? ` · ${plural(header.threads, "thread")}` : "";
  const when = new Date(header.date);
  const date = Number.isNaN(when.valueOf()) ? "" :
    ` · ${when.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}`;
  return `${header.device}${processor}${threads} · ${header.dtype}${torch ? ` · torch ${torch}` : ""}${date}`;
}

const GUESSERS = {
  model: "a small model guesses ahead",
  ngram: "guesses are copied from the text so far",
  "early-exit": "the target’s own first layers guess ahead",
};

/** Who guesses in the lane with drafts, and who judges. */
export function guesser({ drafter, gamma }) {
  const who = gamma ? GUESSERS[drafter] : null;
  return who ? `${who}, one pass of the target judges` : "no guesses: it does what the other lane does";
}
