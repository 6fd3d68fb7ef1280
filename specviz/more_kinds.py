"""The drafters and verdicts that few runs take, each with all that the program knows of it."""

from __future__ import annotations

from .core.kinds import DrafterKind, VerdictKind

NGRAM = DrafterKind(
    name="ngram",
    beside=2,
    make=".sides.lookup.ngram:NgramDrafter",
    label="n-grams",
    deployed=".measure.sweep.deploy:ngram",
    choice="n-grams",
    lane="n-gram",
    clause="guesses are copied from the text so far",
    guessed="The end of the text stood in it before: the {count} that followed there are "
    "copied as guesses. No model is asked, so q is 1 for each.",
    unguessed="The end of the text has not stood in it before, so there was nothing to copy.",
    predicted="copied",
    certain=True,
)

SUFFIX = DrafterKind(
    name="suffix",
    beside=4,
    make=".sides.lookup.suffix:SuffixDrafter",
    label="counts",
    deployed=".measure.sweep.deploy:suffix",
    clause="guesses are what followed such text before",
    guessed="The longest end of the text that was seen before is looked up, and what followed "
    "it each time is counted: q is each token’s share, and one is drawn from it. So come "
    "{count}, one after the other; how many was settled before.",
    guessed_greedy="The longest end of the text that was seen before is looked up, and what "
    "followed it each time is counted: the most frequent token is the guess. So come {count}, "
    "one after the other; how many was settled before.",
    unguessed="Nothing that was seen before was likely enough to hold.",
    reads_memory=True,
    predicted="copied",
    counted=True,
)

EARLY_EXIT = DrafterKind(
    name="early-exit",
    beside=3,
    make=".sides.early_exit:EarlyExitDrafter",
    described=".sides.early_exit:described_exit",
    label="early exit",
    deployed=".measure.sweep.deploy:early_exit",
    clause="the target’s own first layers guess ahead",
    who="The target’s own first layers guess",
    needs="layers",
    predicted="place",
    cost="target",
    has_model=True,
)

HEAD = DrafterKind(
    name="head",
    beside=5,
    make=".sides.heads:HeadDrafter",
    described=".sides.heads:described_head",
    label="head",
    choice="Head on the target",
    deployed=".measure.sweep.deploy:head",
    clause="a layer on the target guesses ahead",
    who="The head, a layer that begins at the target’s hidden states, guesses",
    needs="head",
    reads_states=True,
    predicted="chained",
    cost="target",
    has_model=True,
)

NGRAM_HEAD = DrafterKind(
    name="ngram-head",
    beside=6,
    make=".sides.heads:NgramHeadDrafter",
    described=".sides.heads:described_head",
    label="n-grams or head",
    choice="Copies, else the head",
    clause="guesses are copied, or made by a layer",
    guessed="Where the text repeats itself it is copied, as long as copies are accepted; else the "
    "head, a layer that begins at the target’s hidden states, guesses. So come {count}.",
    needs="head",
    reads_states=True,
    predicted="chained",
    cost="target",
    has_model=True,
)

BLOCK = VerdictKind(
    name="block",
    decide=".core.verdicts:decide_block",
    label="block",
    clause="all drafts of a round are judged together",
    law="Exact does not mean the same words, it means the same chances. Block verification "
    "judges the guesses of a round together: it accepts more of them than one test after the "
    "other would, and makes up for exactly what it rejects, so every text keeps the "
    "probability that the target alone gives it (Sun et al. 2024).",
    note="The guesses are judged together, but shown one after the other: all up to the last "
    "one whose draw is below its threshold are accepted. So the text follows p, and never fewer "
    "are accepted on average than one by one.",
    left="left: max(0, w p − q)",
    beta="mean overlap of the two distributions, as the token rule has it",
    threshold="u",
    weighted=True,
    together=True,
    numbers=".core.verdicts:block_shown",
    after=".core.verdicts:left_of_block",
)

EXACT_MATCH = VerdictKind(
    name="exact-match",
    decide=".core.verdicts:decide_exact_match",
    label="exact match",
    clause="drafts are compared with the target's own draws",
    law="Exact does not mean the same words, it means the same chances. Here the target draws "
    "each token itself, from p, and a guess is accepted only if it is that token: what is written "
    "are always the target’s own draws.",
    note="The target’s own draws are what is written, so the text follows p. Fewer guesses "
    "hold than with the ratio p / q, which may accept a guess that the target would not "
    "have drawn this time.",
    left="p without the rejected one",
    beta="mean probability that the rule accepts a draft",
    chance=True,
    numbers=".core.verdicts:exact_match_shown",
    after=".core.verdicts:left_of_exact_match",
)

TYPICAL = VerdictKind(
    name="typical",
    decide=".core.verdicts:decide_typical",
    label="typical",
    exact=False,
    choice="Typical (changes the text)",
    clause="drafts are kept that the target finds likely enough",
    law="This rule is not exact. A guess is kept if the target finds it likely enough, however "
    "often the draft guesses it, and nothing makes up for that: the text follows another "
    "distribution (Cai et al. 2024). The experiment below shows by how much.",
    note="Kept means “likely enough” here: nothing makes up for guesses that the draft makes "
    "too often. The text does not follow the target’s distribution.",
    beta="mean probability that the rule accepts a draft",
    chance=True,
    threshold="p",
    draws=False,
    residual=False,
    numbers=".core.verdicts:typical_shown",
)
