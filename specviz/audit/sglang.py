"""SGLang by its own `/generate`, which reports token ids, drafts and log-probabilities. Written
from its documentation and sources, and tested with a server that answers in this form; it needs a
GPU and was never run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.settings import Settings
from ..sides.served.interface import TargetServer
from ..sides.watched.engines import Prompt, Reader, WatchedEngine
from ..sides.watched.steps import Step, StreamedToken
from .other_streams import ACCEPTED, DRAFTED, end_reason, first_count


class SglangReader(Reader):
    """Makes a step of each chunk. A chunk repeats the whole text so far, or, where the server was
    started with `--stream-output`, has the new part alone. drafted, accepted: of the whole text;
    None if not reported."""

    def __init__(self, engine: WatchedEngine, settings: Settings) -> None:
        super().__init__(engine, settings)
        self._text = ""
        self.drafted: int | None = None
        self.accepted: int | None = None

    def _steps(self, chunk: dict[str, Any], at: float) -> list[Step]:
        record = chunk["meta_info"]
        self.drafted = first_count(record, DRAFTED, self.drafted)
        self.accepted = first_count(record, ACCEPTED, self.accepted)
        reason = record.get("finish_reason")
        if isinstance(reason, Mapping):
            self.ended = end_reason(reason.get("type"))
        count = int(record["completion_tokens"])
        new_ids = [int(token_id) for token_id in chunk["output_ids"]]
        new_text = str(chunk["text"])
        repeats_whole_text = len(new_ids) == count
        if repeats_whole_text:
            new_ids = new_ids[self._count :]
            new_text = new_text.removeprefix(self._text)
        self._text += new_text
        self._count = count
        if not new_ids:
            return []
        *first_ids, last_id = new_ids
        tokens = [StreamedToken(token_id, "", at) for token_id in first_ids]
        tokens.append(StreamedToken(last_id, new_text, at))
        return [Step(tokens)]


class SglangEngine(WatchedEngine):
    """A model on SGLang's server."""

    path = "/generate"
    text_field = "prompt"
    special_tokens_field = "add_special_tokens"
    reader = SglangReader

    def question(self, prompt: Prompt, settings: Settings) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if isinstance(prompt, str):
            body["text"] = prompt
        else:
            body["input_ids"] = list(prompt)
        sampling_params = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k or -1,
            "max_new_tokens": settings.max_new_tokens,
            "ignore_eos": settings.ignore_eos,
            "sampling_seed": settings.seed,
        }
        return {**body, "sampling_params": sampling_params, "stream": True}


class SglangTarget(TargetServer):
    """The log-probabilities that SGLang lists."""

    path = "/generate"
    text_field = "text"
    special_tokens_field = "add_special_tokens"
    gives_logprobs = "SGLang (return_logprob, top_logprobs_num)"

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        return {
            "input_ids": [list(ids) for ids in prefixes],
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 1},
            "return_logprob": True,
            "top_logprobs_num": listed,
        }

    def _top_logprobs(self, answer: Any, count: int) -> Iterator[tuple[list[int], list[float]]]:
        answers = [answer]
        if isinstance(answer, list):
            answers = answer
        if len(answers) != count:
            raise ValueError
        for answer_part in answers:
            top = answer_part["meta_info"]["output_top_logprobs"][0]
            ids = [int(entry[1]) for entry in top]
            logprobs = [float(entry[0]) for entry in top]
            yield ids, logprobs


def drawn_ids(answer: Any) -> tuple[tuple[int, ...], str]:
    """The ids and the text of a whole answer. Raises `ANOTHER_FORM`."""
    ids = tuple(int(token_id) for token_id in answer["output_ids"])
    return ids, str(answer["text"])
