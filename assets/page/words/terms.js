// What the words and letters of the page mean, each in one sentence.

/** By the name that a caption has in `data-define`. @type {Record<string, string>} */
export const TERMS = {
  target: "Target: the large model whose text this is. It writes alone in one lane, and judges every guess "
    + "in the other.",
  draft: "Draft: a quick helper, often a small model, that guesses the next tokens. The target judges them.",
  pass: "Pass: the target reads once, with all its weights. Alone it writes one token per pass; "
    + "with guesses to judge, several.",
  gamma: "γ, gamma: how many tokens are guessed before each pass, at most.",
  alpha: "α, alpha: of the guesses that the target judged, the share that it accepted.",
  tau: "τ, tau: tokens written per pass of the target, on average. The target alone has 1.",
  beta: "β, beta: the chance that a guess at this place is accepted, as far as draft and target agree there.",
  c: "c: what one guess costs, in passes of the target alone over one token.",
  speed: "Tokens written, by the seconds of the lane’s own clock.",
  progress: "Tokens that each lane has written, against the seconds of its own clock. "
    + "The steeper, the faster.",
  accepted: "Accepted: a guess that the target judged and kept.",
  rejected: "Rejected: a guess that the target judged and refused.",
  ignored: "Ignored: guessed after a rejected one, or cut by the end of the text, and so never judged.",
  corrected: "Corrected: the target’s own token in the place of a rejected guess.",
  bonus: "Bonus: one token more from the same pass, since every guess before it was accepted.",
  own: "No guess: written by the target in a round without a guess, so one pass for one token.",
  untold: "Untold: ends a pass of a server that does not tell what it guessed: a correction or a bonus.",
};

/** The six words with which the page can be read, in the order in which they are needed. */
export const GLOSSARY = ["target", "draft", "pass", "gamma", "alpha", "tau"];
