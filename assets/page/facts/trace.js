// Traces from a file or the server, with derived properties that are not in their JSON.

/**
 * @template {object} Part
 * @template {object} More
 * @param {Part} part
 * @param {More} more
 */
function withMore(part, more) {
  for (const [name, value] of Object.entries(more)) {
    Object.defineProperty(part, name, { value, configurable: true });
  }
  return /** @type {Part & More} */ (part);
}

/** @type {(trace: FiledTrace) => Trace} */
export const asTrace = (trace) => ({
  schema: trace.schema,
  header: asHeader(trace.header),
  rounds: trace.rounds.map(asRound),
  end: trace.end && asEnd(trace.end),
});

/** With the settings and the draft model of the first lane. @type {(header: FiledHeader) => Header} */
export const asHeader = (header) =>
  withMore(header, { settings: Object.values(header.lanes)[0], draft: Object.values(header.drafts)[0] });

/** With the tokens that it added to the text. @type {(round: FiledRound) => Round} */
export function asRound(round) {
  const accepted = round.drafted.filter(({ outcome }) => outcome === "accepted");
  return withMore(round, { emitted: round.last ? [...accepted, round.last] : accepted });
}

/** With the agreement of the first lane's text. @type {(end: FiledEnd) => End} */
export const asEnd = (end) =>
  withMore(end, Object.values(end.lanes ?? {})[0] ?? { identical: null, compared: 0, divergence: null });

/**
 * Mark a trace without an end as interrupted: nothing will follow.
 * @param {Trace} trace
 */
export function interrupt(trace) {
  if (!isOver(trace)) withMore(trace, { isInterrupted: true });
}

/**
 * Whether a trace is complete or interrupted, so that nothing will follow.
 * @param {Pick<Trace, "end" | "isInterrupted">} trace
 */
export const isOver = ({ end, isInterrupted }) => end !== null || isInterrupted === true;
