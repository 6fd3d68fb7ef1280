"""How many tokens the drafters that look text up would bring, if a target wrote a given text.

No model runs: where a target is greedy and writes that text, a draft is kept if and only if it is
the text's next token. So the figures depend on no machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..decoding.drafters.ngram import NgramDrafter
from ..decoding.drafters.suffix import SuffixDrafter
from ..decoding.paths import make_context
from ..decoding.sampling import decide
from ..decoding.types import Drafter
from ..errors import SpecvizError
from ..lanes import SPECULATIVE
from ..settings import Settings


@dataclass(frozen=True, slots=True)
class Lookup:
    """tau: tokens per target pass. alpha: kept / judged drafts, None without any. drafted: drafted
    tokens per pass."""

    tau: float
    alpha: float | None
    drafted: float


def looked_up(drafter: Drafter, prompt: Sequence[int], text: Sequence[int], gamma: int) -> Lookup:
    """What `drafter` would bring while the ids `text` are written after `prompt`."""
    ids, rounds, kept, judged, drafted = list(prompt), 0, 0, 0, 0
    while len(ids) < len(prompt) + len(text):
        rest = text[len(ids) - len(prompt) :]
        count = min(gamma, len(rest) - 1)
        draft = drafter.draft(ids, count) if count else None
        found = [] if draft is None else draft.ids.tolist()
        pairs = enumerate(zip(found, rest, strict=False))
        held = next((i for i, (ours, theirs) in pairs if ours != theirs), len(found))
        ids += rest[: held + 1]
        rounds, kept, drafted = rounds + 1, kept + held, drafted + len(found)
        judged += held + (held < len(found))
    return Lookup(len(text) / rounds, kept / judged if judged else None, drafted / rounds)


def lookup_lines(
    tokenizer: Any, vocab: int, texts: tuple[str, str], gammas: Sequence[int]
) -> list[str]:
    """A Markdown table for the text that is written after another, by drafter and gamma.

    texts: what is read, and what is then written. "warm" is the drafter "suffix" that was given
    the written text as an earlier one, as when a request is repeated.
    """
    prompt, text = (tokenizer(one, add_special_tokens=False)["input_ids"] for one in texts)
    drafters: dict[str, Callable[[], Drafter]] = {
        "`ngram`": lambda: NgramDrafter(vocab, torch.device("cpu")),
        "`suffix`, cold": lambda: _suffix(vocab),
        "`suffix`, warm": lambda: _suffix(vocab, text),
    }
    lines = ["| | " + " | ".join(f"γ {gamma}: τ, α, drafted" for gamma in gammas) + " |"]
    lines.append("|---|" + "---|" * len(gammas))
    for name, make in drafters.items():
        cells = (_cell(looked_up(make(), prompt, text, gamma)) for gamma in gammas)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def lookup_report(tokenizer: Any, vocab: int, files: Sequence[str], gamma: int) -> None:
    """Print the table of two files: what is read, and what is then written."""
    try:
        read, written = (Path(file).read_text("utf-8") for file in files)
    except (OSError, UnicodeError) as error:
        raise SpecvizError(f"a text cannot be read: {error}.") from error
    if not written:
        raise SpecvizError(f"{files[1]} is empty: name a file with the text that is written.")
    for line in lookup_lines(tokenizer, vocab, (read, written), sorted({gamma, 12})):
        print(line)


def _suffix(vocab: int, *memory: Sequence[int]) -> SuffixDrafter:
    return SuffixDrafter(
        make_context(Settings(), vocab, torch.device("cpu"), decide, SPECULATIVE, memory)
    )


def _cell(found: Lookup) -> str:
    alpha = "–" if found.alpha is None else f"{found.alpha:.2f}"
    return f"{found.tau:.2f}, {alpha}, {found.drafted:.1f}"
