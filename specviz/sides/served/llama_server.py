"""llama.cpp's server as a target: its own `/completion`, one prefix after another.

It ignores `echo` and `prompt_logprobs`. One request carries a prompt per wanted place; the server
works on them one after another in a slot, and its prompt cache (`cache_prompt`) leaves one new
token for each. So a round of gamma drafts costs gamma + 1 small passes of the target: the text is
exact, and nothing is gained in speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .interface import TargetServer

FIELDS = ["index", "completion_probabilities", "timings"]  # of an answer, which else repeats much


class LlamaServer(TargetServer):
    """The model on a server of llama.cpp, which does not draw."""

    path = "/completion"
    wanted = "llama.cpp's server gives them (n_probs)"

    def tokenize(self, text: str) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": True}
        return list(self._told("/tokenize", body, "tokens", list))

    def detokenize(self, ids: Sequence[int]) -> str:
        return str(self._told("/detokenize", {"tokens": list(ids)}, "content", str))

    def _body(self, prompt: Sequence[Any], count: int) -> dict[str, Any]:
        greedy = {"temperature": 0.0, "cache_prompt": True}
        return {"prompt": list(prompt), "n_predict": count, **greedy}

    def _question(self, prefixes: Sequence[Sequence[int]], listed: int) -> dict[str, Any]:
        prompts = [list(ids) for ids in prefixes]
        return {**self._body(prompts, 1), "n_probs": listed, "response_fields": FIELDS}

    def _tops(self, answer: Any, count: int) -> Iterator[tuple[list[int], list[float]]]:
        places = sorted(_listed(answer), key=lambda one: int(one["index"]))
        if len(places) != count:
            raise ValueError
        for one in places:
            top = one["completion_probabilities"][0]["top_logprobs"]
            yield [int(t["id"]) for t in top], [float(t["logprob"]) for t in top]

    def _has_text(self, chunk: dict[str, Any]) -> bool:
        return not chunk.get("stop")

    def _worked(self, answer: Any) -> float | None:
        try:
            told = [one["timings"] for one in _listed(answer)]
            return sum(float(one["prompt_ms"]) + float(one["predicted_ms"]) for one in told) / 1000
        except (KeyError, TypeError, ValueError):
            return None


def _listed(answer: Any) -> list[dict[str, Any]]:
    """The answers to several prompts; the answer to a single one comes by itself."""
    return answer if isinstance(answer, list) else [answer]
