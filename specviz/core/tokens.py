"""Make a reader's tokens from a judged round. No lane's clock runs here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .events import Token
from .settings import Settings
from .text import Pieces, StopTexts, Texts, TextStream, texts_of
from .types import JudgedRound
from .views import Views

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer


class AnnotatedTokens(NamedTuple):
    """A round's tokens for the reader.

    last: the corrected or bonus one; None if the text ended before it. has_stop_text: whether a
    stop text ends the lane.
    """

    drafted: list[Token]
    last: Token | None
    has_stop_text: bool


class Annotator:
    """Makes the `Token`s of a lane. It follows the text, and ends it at a stop text."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: Settings,
        prompt_ids: Sequence[int],
        top_logprobs_only: bool,
    ) -> None:
        """top_logprobs_only: as `Engine` has it."""
        self._settings = settings
        self._top_logprobs_only = top_logprobs_only
        self._stream = TextStream(tokenizer, prompt_ids)
        self._pieces = Pieces(tokenizer)
        self._stops = StopTexts(settings.stop)

    def tokens(
        self, judged: JudgedRound, emitted: list[int], index: int, lane_ended: bool
    ) -> AnnotatedTokens:
        """Make the tokens of round `index`, from 0. lane_ended: whether the lane ends with it.
        Raises `ModelError`.

        The ids `emitted` may be cut by an end: what was drafted after it counts as never judged.
        """
        views = Views(judged, self._settings, self._pieces, self._top_logprobs_only)
        views.check(index)
        kept = min(judged.verdict.accepted, len(emitted))
        texts = texts_of(self._stream, judged.ids, emitted, kept)
        stop = self._stops.completed_at(texts.emitted)
        if stop is not None:
            dropped = texts.emitted[stop + 1 : kept]
            texts = Texts(texts.emitted[: stop + 1], dropped + texts.not_emitted)
            kept = min(kept, stop + 1)
        elif lane_ended:
            texts.emitted[-1] += self._stream.flush()
        drafted, last = tokens_of(judged, kept, texts, views)
        return AnnotatedTokens(drafted, last, has_stop_text=stop is not None)


def tokens_of(
    judged: JudgedRound, kept: int, texts: Texts, views: Views
) -> tuple[list[Token], Token | None]:
    """Make a round's drafted tokens, and the corrected or bonus one; None if the text ended before
    it. kept: how many drafts are in the text."""
    accepted, next_id, outcome = judged.verdict
    has_last = len(texts.emitted) > kept
    drafted = []
    for i, token_id in enumerate(judged.ids):
        if i < kept:
            drafted.append(views.token(i, token_id, texts.emitted[i], "accepted"))
        elif i == kept and has_last:
            drafted.append(views.token(i, token_id, texts.not_emitted[0], "rejected"))
        else:
            drafted.append(views.unjudged(i, token_id, texts.not_emitted[i - kept]))
    if not has_last:
        return drafted, None
    return drafted, views.final(accepted, next_id, texts.emitted[-1], outcome)
