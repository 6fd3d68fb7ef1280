"""What a draft would have guessed of a text that another model wrote, as data.

`decoding.guesses` finds it out, with the draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..runs.terminal import STYLES, printable, styled
from ..runs.words import shown_number

NAME = "No speed-up: a thought experiment"
WHY = (
    "The model that wrote this text judged nothing, so nothing ran faster. A guess counts as right "
    "if it is the very token that was written."
)
UNITS = (
    "Tokens are the draft's; the model that wrote the text has others. Tokens per round would be "
    "the upper limit of a speed-up, with guesses and checks that cost nothing."
)


class Guess(NamedTuple):
    """One place of the text, in the draft's own tokens.

    text: what was written. guess: the draft's first choice there, knowing all that was written
    before. right: whether it is the written token. q_guess, q_text: the draft's probabilities of
    both at temperature 1.
    """

    text: str
    guess: str
    right: bool
    q_guess: float
    q_text: float


class WouldBe(NamedTuple):
    """The rounds that the guesses would have made at one gamma.

    rounds: how many tokens each would have written. right, judged: guesses that would have been
    kept, and all that would have been judged.
    """

    rounds: tuple[int, ...]
    right: int
    judged: int

    @property
    def alpha(self) -> float | None:
        """right / judged; None if nothing was judged."""
        return self.right / self.judged if self.judged else None

    @property
    def tau(self) -> float | None:
        """Tokens per round; None without a round."""
        return sum(self.rounds) / len(self.rounds) if self.rounds else None


@dataclass(frozen=True, slots=True)
class Guesses:
    """All places of a text.

    draft: its name. before: the part of the text that had nothing before it, so that nobody could
    guess it; mostly empty. places: in the order of the text. left_out: tokens at the end of the
    text that were not looked at.
    """

    draft: str
    before: str
    places: tuple[Guess, ...]
    left_out: int

    @property
    def right(self) -> int:
        """At how many places the draft's first choice was written."""
        return sum(one.right for one in self.places)

    def would_be(self, gamma: int) -> WouldBe:
        """The rounds at this gamma."""
        return would_be([one.right for one in self.places], gamma)


def would_be(right: Sequence[bool], gamma: int) -> WouldBe:
    """The rounds of gamma guesses over places whose first choices were right or not.

    They are those that greedy drafts make beside a target that writes this text. As long as the
    guesses of a round hold, the draft has read what was written, so that its guess at each place
    is known from one pass over the text; the first that fails ends the round, and the next token
    is the target's own. This holds for a sampled text too, under the rule that keeps a guess if
    it is the token that the target drew.
    """
    rounds: list[int] = []
    kept = judged = start = 0
    while start < len(right):
        # As a lane does: no more than what leaves the last token to the target.
        drafted = right[start : start + min(gamma, len(right) - start - 1)]
        held = next((i for i, one in enumerate(drafted) if not one), len(drafted))
        kept, judged = kept + held, judged + min(held + 1, len(drafted))
        rounds.append(held + 1)
        start += held + 1
    return WouldBe(tuple(rounds), kept, judged)


def guess_lines(found: Guesses, gamma: int, gammas: Sequence[int], *, color: bool) -> Iterator[str]:
    """The would-be rounds at `gamma`, as those of a run are shown, then what each of `gammas` would
    have brought."""
    if found.before:
        yield f"     │ {printable(found.before)}"
    start = 0
    for index, count in enumerate(found.would_be(gamma).rounds):
        *kept, own = found.places[start : start + count]
        start += count
        drafted = count <= gamma and start < len(found.places)
        yield f"{index + 1:4} │ {_would_be_line(kept, own, drafted, color)}"
    right, places = found.right, len(found.places)
    yield f"\n{found.draft} had {right} of {places} places right ({right / places:.2f})"
    if found.left_out:
        yield f"the last {found.left_out} tokens of the text were left out"
    yield f"{'gamma':>7}{'rounds':>9}{'alpha':>8}{'tau':>8}"
    for one in gammas:
        its = found.would_be(one)
        alpha, tau = shown_number(its.alpha, 3), shown_number(its.tau, 2)
        yield f"{one:7}{len(its.rounds):9}{alpha:>8}{tau:>8}"
    yield UNITS


def _would_be_line(kept: Sequence[Guess], own: Guess, drafted: bool, color: bool) -> str:
    """A would-be round. drafted: whether the place of the target's own token was guessed too."""
    shown = "".join(styled("accepted", printable(one.text), color) for one in kept)
    if not drafted:
        return shown + styled("bonus", STYLES["bonus"][0] + printable(own.text), color)
    wrong = printable(own.guess)
    shown += styled("rejected", STYLES["rejected"][0] + (wrong if color else f"[-{wrong}-]"), color)
    return shown + styled("corrected", STYLES["corrected"][0] + printable(own.text), color)
