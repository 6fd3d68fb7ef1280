"""`python -m specviz guess`: what a draft would have got right of a text of another model.

One pass of the draft over the text is enough for every gamma: as long as the guesses of a round
hold, it has read what was written; the first that fails ends the round.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..core.engine_choice import make_engine
from ..core.events import Round, Token
from ..core.header import model_name
from ..core.model_facts import context_length
from ..core.pair import Pair, checked_pair
from ..core.sampling import greedy_ids
from ..core.text import Pieces, TextStream
from ..environment import BUILTIN
from ..errors import PairError, PromptError, SpecvizError
from ..lanes import SPECULATIVE
from ..options import add_color, colored, whole
from ..pairs.load import load_pair
from ..pairs.progress import terminal_watcher
from ..pairs.spec import NO_DRAFT, is_row
from ..runs.metrics import ratio
from ..runs.tables import shown_number
from ..runs.terminal import printable, round_line
from ..settings import Settings

NAME = "No speed-up: a thought experiment"
WHY = (
    "The model that wrote this text judged nothing, so nothing ran faster. A guess counts as right "
    "if it is the very token that was written."
)
UNITS = (
    "Tokens are the draft's; the model that wrote the text has others. Tokens per round would be "
    "the upper limit of a speed-up, with guesses and checks that cost nothing."
)
GAMMAS = (1, 2, 3, 5, 8, 16)
FED = 32  # places of the text per pass
MOST_TOKENS = 2048  # of a text


@dataclass(frozen=True, slots=True)
class Guess:
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


@dataclass(frozen=True, slots=True)
class Guesses:
    """All places of a text.

    draft: its name. before: the part of the text that had nothing before it, so that nobody could
    guess it; mostly empty. left_out: tokens at the end of the text that were not looked at.
    """

    draft: str
    before: str
    left_out: int
    places: tuple[Guess, ...]

    @property
    def right(self) -> int:
        """At how many places the draft's first choice was written."""
        return sum(one.right for one in self.places)

    def rounds(self, gamma: int) -> list[Round]:
        """The rounds of `gamma` guesses as a lane would have shown them, without times.

        They are those of greedy drafts beside a target that writes this text; for a sampled text,
        under the rule that keeps a guess if it is the token that the target drew.
        """
        rounds: list[Round] = []
        drafts: list[Token] = []
        for place, one in enumerate(self.places, 1):
            # As a lane does: no more than what leaves the last token to the target.
            is_drafted = len(drafts) < gamma and place < len(self.places)
            if is_drafted and one.right:
                drafts.append(Token(0, one.text, "accepted"))
                continue
            if is_drafted:
                drafts.append(Token(0, one.guess, "rejected"))
            last = Token(0, one.text, "corrected" if is_drafted else "bonus")
            rounds.append(Round(SPECULATIVE, len(rounds), drafts, last, 0.0, 0.0, 0.0, 0.0))
            drafts = []
        return rounds

    def would_be(self, gamma: int) -> dict[str, Any]:
        """What these rounds would have brought.

        rounds: how many tokens each would have written. right, judged: guesses that would have been
        kept, and all that would have been judged. alpha: right / judged. tau: tokens per round.
        Both are None where there are none.
        """
        rounds = self.rounds(gamma)
        written, judged = [len(r.emitted) for r in rounds], sum(len(r.drafted) for r in rounds)
        right = len(self.places) - len(rounds)
        rates = {"alpha": ratio(right, judged), "tau": ratio(len(self.places), len(rounds))}
        return {"rounds": written, "right": right, "judged": judged, **rates}


def guesses(draft: Pair, text: str, prompt: str = "", *, continues: bool = False) -> Guesses:
    """The draft's first choice at each place of `text`.

    draft: a pair whose target is the model that guesses (see `draft_of`). The text is cut by its
    tokenizer, whatever wrote it; what is longer than `MOST_TOKENS` or its context is left out.
    prompt: what the text answers, or, if it `continues`, what stands directly before it. Raises
    `PromptError` if there is nothing to guess.
    """
    before = _context(draft, prompt, continues)
    whole = [i for i in draft.text_ids(text) if i < draft.vocab]
    stream, pieces = TextStream(draft.tokenizer, before), Pieces(draft.tokenizer)
    start = 0 if before else 1  # nothing stands before the first token
    before = before or whole[:1]
    limit = context_length(draft.target) or MOST_TOKENS
    ids = whole[start:][: max(0, min(MOST_TOKENS, limit - len(before)))]
    if not ids:
        raise PromptError(
            "there is nothing to guess: give a text of a few words, and a prompt that leaves room "
            f"for it in the draft's context of {limit:,} tokens."
        )
    first = "".join(map(stream.push, whole[:start]))
    places = [
        Guess(stream.push(wrote), pieces[own], own == wrote, *q)
        for wrote, own, q in _choices(draft, before, ids)
    ]
    places[-1] = replace(places[-1], text=places[-1].text + stream.flush())
    return Guesses(draft.name, first, len(whole) - start - len(ids), tuple(places))


def _choices(
    draft: Pair, before: Sequence[int], ids: Sequence[int]
) -> Iterator[tuple[int, int, list[float]]]:
    """Of each place the written id, the draft's first choice, and its probability of either."""
    engine = make_engine(draft.target, draft.vocab)
    unread = list(before)
    for begin in range(0, len(ids), FED):
        written = ids[begin : begin + FED]
        unread += written[:-1]
        with torch.inference_mode():
            rows = engine.forward(torch.tensor(unread, device=engine.device), keep=len(written))
            chosen = greedy_ids(rows)
            both = torch.stack([chosen, torch.tensor(written, device=chosen.device)], -1)
            q = torch.softmax(rows, -1).gather(1, both)
        yield from zip(written, chosen.tolist(), q.tolist(), strict=True)
        unread = [written[-1]]


def draft_of(pair: Pair) -> Pair:
    """The draft model of a pair alone, as the target of a pair without a draft. Raises
    `PairError` if it has none."""
    if pair.draft is None:
        raise PairError("this pair has no draft model that could guess: choose a pair with one.")
    tokenizer = pair.draft_tokenizer or pair.tokenizer
    name = "the built-in draft" if pair.name == BUILTIN else model_name(pair.draft)
    return Pair(target=pair.draft, draft=None, tokenizer=tokenizer, name=name)


def _context(draft: Pair, prompt: str, continues: bool) -> list[int]:
    """What the draft reads before the text: ids, perhaps none."""
    if not prompt:
        return [i for i in draft.tokenizer("")["input_ids"] if i < draft.vocab]
    if continues:
        return draft.encode(prompt, chat="off")
    return draft.encode(prompt if draft.is_chat else f"{prompt.rstrip()}\n\n")


def guess_lines(found: Guesses, gamma: int, *, color: bool) -> Iterator[str]:
    """The would-be rounds at `gamma`, as those of a run are shown, then what each of `GAMMAS` would
    have brought."""
    yield f"{NAME}. {WHY}\n"
    if found.before:
        yield f"     │ {printable(found.before)}"
    for one in found.rounds(gamma):
        yield round_line(one, color=color)
    right, places = found.right, len(found.places)
    yield f"\n{found.draft} had {right} of {places} places right ({right / places:.2f})"
    if found.left_out:
        yield f"the last {found.left_out} tokens of the text were left out"
    yield f"{'gamma':>7}{'rounds':>9}{'alpha':>8}{'tau':>8}"
    for each in GAMMAS:
        its = found.would_be(each)
        alpha, tau = shown_number(its["alpha"], 3), shown_number(its["tau"], 2)
        yield f"{each:7}{len(its['rounds']):9}{alpha:>8}{tau:>8}"
    yield UNITS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `guess` to a parser."""
    add = parser.add_argument
    draft = "a hub id or a folder, or the name of a pair whose draft guesses; default %(default)s"
    add("--draft", default=BUILTIN, metavar="ID", help=draft)
    add("--text", required=True, metavar="FILE", help="what the model wrote; - is the input")
    add("--prompt", default="", help="what the text answers")
    add("--continues", action="store_true", help="the text goes on from the prompt (completions)")
    add("--gamma", type=whole(1), default=Settings().gamma, help="of the rounds that are printed")
    add_color(parser)
    add("--json", action="store_true", help="print places and rounds as JSON")


def main(options: argparse.Namespace) -> None:
    """Compare a text with the draft's guesses and print both. Raises `SpecvizError`."""
    text = _text(options.text)
    has_target = is_row(options.draft) or "+" in options.draft
    name = options.draft if has_target else f"{options.draft}+{NO_DRAFT}"
    pair = checked_pair(load_pair(name, on_progress=terminal_watcher()))
    draft = draft_of(pair) if has_target else replace(pair, name=model_name(pair.target))
    found = guesses(draft, text, options.prompt, continues=options.continues)
    if options.json:
        rounds = {gamma: found.would_be(gamma) for gamma in GAMMAS}
        print(json.dumps({"name": NAME, **asdict(found), "would_be": rounds}, indent=1))
        return
    print(*guess_lines(found, options.gamma, color=colored(options)), sep="\n")


def _text(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise SpecvizError(f"{file} cannot be read as a text in UTF-8.") from error
    return text.rstrip("\n")  # which editors add
