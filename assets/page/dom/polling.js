// Asking for the state of a job in the server's queue until it is over.

const ASK_EVERY = 400; // ms

export const NO_ANSWER = "The server did not answer: try again.";

/**
 * The last state of a job, or null if nobody wants it any more: the server then ends it. Throws if
 * the server gives no answer.
 * @param {Server} server
 * @param {Promise<ExperimentState> | undefined} begun
 * @param {() => boolean} isWanted
 * @param {(state: ExperimentState) => void} show  each state but the last
 */
export async function lastState(server, begun, isWanted, show) {
  let state = await begun;
  while (isWanted() && state?.id && !state.over) {
    show(state);
    const { id } = state;
    await new Promise((resume) => setTimeout(resume, ASK_EVERY));
    if (isWanted()) state = await server.ask_job?.({ id });
  }
  if (!state) throw new Error("the server gave no answer");
  if (isWanted()) return state;
  if (state.id) server.end_job?.({ id: state.id });
  return null;
}
