"""`python -m specviz guess`: count the tokens of another model's text that a draft would have
guessed.

One pass of the draft over the text is enough for every gamma: while a round's guesses are right,
the draft has read exactly the text; the first wrong guess ends the round.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..base.environment import BUILTIN
from ..base.errors import PairError, PromptError, SpecvizError
from ..base.options import add_color, colored, whole
from ..core.engine_choice import make_engine
from ..core.events import Round, Token
from ..core.header import model_name
from ..core.lanes import SPECULATIVE
from ..core.model_facts import context_length
from ..core.pair import Pair, checked_pair
from ..core.settings import Settings
from ..core.tensor_draws import greedy_ids
from ..core.text import Pieces, TextStream
from ..files.progress import terminal_watcher
from ..pairs.load import load_pair
from ..pairs.spec import NO_DRAFT, is_row
from ..runs.metrics import ratio
from ..runs.tables import shown_number
from ..runs.terminal import printable, round_line

NAME = "No speed-up: a thought experiment"
WHY = (
    "The model that wrote this text judged no guesses, so nothing ran faster. A guess counts as "
    "right if it is exactly the token that was written."
)
UNITS = (
    "Tokens are the draft's; the model that wrote the text has others. Tokens per round would be "
    "the limit of the speed-up if guesses and checks cost nothing."
)
GAMMAS = (1, 2, 3, 5, 8, 16)
FED = 32  # positions of the text per pass
MAX_TOKENS = 2048  # of a text


@dataclass(frozen=True, slots=True)
class Guess:
    """One position of the text, in the draft's own tokens.

    text: the written token.
    guess: the draft's first choice there, given all text before.
    right: whether both are the same token.
    q_guess, q_text: the draft's probabilities of both at temperature 1.
    """

    text: str
    guess: str
    right: bool
    q_guess: float
    q_text: float


@dataclass(frozen=True, slots=True)
class Guesses:
    """All positions of a text.

    draft: the draft's name.
    before: the beginning of the text that has no context and cannot be guessed; mostly empty.
    left_out: tokens at the end of the text that were not examined.
    """

    draft: str
    before: str
    left_out: int
    places: tuple[Guess, ...]

    @property
    def right(self) -> int:
        """The number of positions where the draft's first choice was written."""
        return sum(guess.right for guess in self.places)

    def rounds(self, gamma: int) -> list[Round]:
        """The rounds of `gamma` guesses as a lane would have shown them, without times.

        They are those of greedy drafts for a target that writes this text; for a sampled text,
        under the rule that keeps a guess if it is the token that the target drew.
        """
        rounds: list[Round] = []
        drafts: list[Token] = []
        for position, guess in enumerate(self.places, 1):
            # As in a lane: the last token is left to the target.
            is_drafted = len(drafts) < gamma and position < len(self.places)
            if is_drafted and guess.right:
                drafts.append(Token(0, guess.text, "accepted"))
                continue
            if is_drafted:
                drafts.append(Token(0, guess.guess, "rejected"))
                last = Token(0, guess.text, "corrected")
            else:
                last = Token(0, guess.text, "bonus")
            rounds.append(
                Round(
                    lane=SPECULATIVE,
                    index=len(rounds),
                    drafted=drafts,
                    last=last,
                    draft_seconds=0.0,
                    verify_seconds=0.0,
                    overhead_seconds=0.0,
                    clock=0.0,
                )
            )
            drafts = []
        return rounds

    def would_be(self, gamma: int) -> dict[str, Any]:
        """The would-be result of rounds. rounds: the number of tokens that each would have written.
        right, judged: guesses that would have been kept, and all that would have been judged.
        alpha: right / judged. tau: tokens per round. Both are None where there are none.
        """
        rounds = self.rounds(gamma)
        judged = sum(len(r.drafted) for r in rounds)
        right = len(self.places) - len(rounds)
        return {
            "rounds": [len(r.emitted) for r in rounds],
            "right": right,
            "judged": judged,
            "alpha": ratio(right, judged),
            "tau": ratio(len(self.places), len(rounds)),
        }


def guesses(draft: Pair, text: str, prompt: str = "", *, continues: bool = False) -> Guesses:
    """Compute the draft's first choice at each position of `text`.

    draft: a pair whose target is the model that guesses (see `draft_of`). The text is tokenized by
    the draft's tokenizer, whatever model wrote it; tokens beyond `MAX_TOKENS` or the context are
    left out.
    prompt: the prompt that the text answers, or, if it `continues`, the text directly before it.
    Raises `PromptError` if there is nothing to guess.
    """
    context_ids = _context(draft, prompt, continues)
    text_ids = [token_id for token_id in draft.text_ids(text) if token_id < draft.vocab]
    stream = TextStream(draft.tokenizer, context_ids)
    pieces = Pieces(draft.tokenizer)
    unguessed: list[int] = []
    if not context_ids:  # the first token has no context
        unguessed = text_ids[:1]
        context_ids = unguessed
        text_ids = text_ids[1:]
    limit = context_length(draft.target) or MAX_TOKENS
    room = max(0, limit - len(context_ids))
    ids = text_ids[: min(MAX_TOKENS, room)]
    if not ids:
        raise PromptError(
            "there is nothing to guess: give a text of a few words and a prompt short enough that "
            f"both fit in the draft's context of {limit:,} tokens."
        )
    before = "".join(map(stream.push, unguessed))
    places = [
        Guess(
            text=stream.push(choice.written),
            guess=pieces[choice.first],
            right=choice.first == choice.written,
            q_guess=choice.q_first,
            q_text=choice.q_written,
        )
        for choice in _choices(draft, context_ids, ids)
    ]
    last = places[-1]
    places[-1] = replace(last, text=last.text + stream.flush())
    return Guesses(
        draft=draft.name,
        before=before,
        left_out=len(text_ids) - len(ids),
        places=tuple(places),
    )


class _Choice(NamedTuple):
    """The written id at a position, the draft's first choice there, and the draft's probabilities
    of both."""

    written: int
    first: int
    q_first: float
    q_written: float


def _choices(draft: Pair, context_ids: Sequence[int], ids: Sequence[int]) -> Iterator[_Choice]:
    """Yield the choice at each of these ids, which follow the context."""
    engine = make_engine(draft.target, draft.vocab)
    unread = list(context_ids)
    for begin in range(0, len(ids), FED):
        written = ids[begin : begin + FED]
        unread += written[:-1]
        with torch.inference_mode():
            feed = torch.tensor(unread, device=engine.device)
            logits = engine.forward(feed, keep=len(written))  # [written, vocab]
            first = greedy_ids(logits)
            written_ids = torch.tensor(written, device=first.device)
            both = torch.stack([first, written_ids], -1)
            q = torch.softmax(logits, -1).gather(1, both)  # [written, 2]
        for written_id, first_id, (q_first, q_written) in zip(
            written, first.tolist(), q.tolist(), strict=True
        ):
            yield _Choice(
                written=written_id,
                first=first_id,
                q_first=q_first,
                q_written=q_written,
            )
        unread = [written[-1]]


def draft_of(pair: Pair) -> Pair:
    """The draft model of a pair alone, as the target of a pair without a draft. Raises
    `PairError` if it has none."""
    if pair.draft is None:
        raise PairError("this pair has no draft model that could guess: choose a pair with one.")
    tokenizer = pair.draft_tokenizer or pair.tokenizer
    name = model_name(pair.draft)
    if pair.name == BUILTIN:
        name = "the built-in draft"
    return Pair(target=pair.draft, draft=None, tokenizer=tokenizer, name=name)


def _context(draft: Pair, prompt: str, continues: bool) -> list[int]:
    """The ids that the draft reads before the text, perhaps none."""
    if not prompt:
        start_ids = draft.tokenizer("")["input_ids"]
        return [token_id for token_id in start_ids if token_id < draft.vocab]
    if continues:
        return draft.encode(prompt, chat="off")
    if draft.is_chat:
        return draft.encode(prompt)
    return draft.encode(f"{prompt.rstrip()}\n\n")


def guess_lines(guesses: Guesses, gamma: int, *, color: bool) -> Iterator[str]:
    """The would-be rounds at `gamma` in the form of a run's rounds, then the would-be result of
    each of `GAMMAS`."""
    yield f"{NAME}. {WHY}\n"
    if guesses.before:
        yield f"     │ {printable(guesses.before)}"
    for r in guesses.rounds(gamma):
        yield round_line(r, color=color)
    right = guesses.right
    places = len(guesses.places)
    yield f"\n{guesses.draft} guessed {right} of {places} tokens right ({right / places:.2f})"
    if guesses.left_out:
        yield f"the last {guesses.left_out} tokens of the text were left out"
    yield f"{'gamma':>7}{'rounds':>9}{'alpha':>8}{'tau':>8}"
    for listed_gamma in GAMMAS:
        would_be = guesses.would_be(listed_gamma)
        alpha = shown_number(would_be["alpha"], 3)
        tau = shown_number(would_be["tau"], 2)
        yield f"{listed_gamma:7}{len(would_be['rounds']):9}{alpha:>8}{tau:>8}"
    yield UNITS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `guess` to a parser."""
    add = parser.add_argument
    draft = (
        "the draft: a hub id, a folder, a GGUF file, or the name of its pair; default %(default)s"
    )
    add("--draft", default=BUILTIN, metavar="ID", help=draft)
    add(
        "--text",
        required=True,
        metavar="FILE",
        help="the text that the model wrote; - for standard input",
    )
    add("--prompt", default="", help="the prompt that the text answers")
    add("--continues", action="store_true", help="the text continues the prompt (completions)")
    add(
        "--gamma",
        type=whole(1),
        default=Settings().gamma,
        help="gamma of the rounds that are printed",
    )
    add_color(parser)
    add("--json", action="store_true", help="print guesses and rounds as JSON")


def main(options: argparse.Namespace) -> None:
    """Compare a text with the draft's guesses and print both. Raises `SpecvizError`."""
    text = _text(options.text)
    draft = _loaded_draft(options.draft)
    result = guesses(draft, text, options.prompt, continues=options.continues)
    if options.json:
        would_be = {gamma: result.would_be(gamma) for gamma in GAMMAS}
        report = {"name": NAME, **asdict(result), "would_be": would_be}
        print(json.dumps(report, indent=1))
        return
    lines = guess_lines(result, options.gamma, color=colored(options))
    print(*lines, sep="\n")


def _loaded_draft(name: str) -> Pair:
    """The draft of a named pair, or the model of this name, as a pair without a draft."""
    is_pair = is_row(name) or "+" in name
    pair_name = name
    if not is_pair:
        pair_name = f"{name}+{NO_DRAFT}"
    pair = checked_pair(load_pair(pair_name, on_progress=terminal_watcher()))
    if is_pair:
        return draft_of(pair)
    return replace(pair, name=model_name(pair.target))


def _text(file: str) -> str:
    try:
        if file == "-":
            text = sys.stdin.read()
        else:
            text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise SpecvizError(f"{file} cannot be read as text: give a file in UTF-8.") from error
    # Editors add a byte order mark, which is not text, and a final line feed.
    return text.removeprefix("\ufeff").rstrip("\n")
