"""The pair that comes with the program: read from its folder, after a look at its checksums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from ..environment import ASSETS, BUILTIN, has_numba
from .checksums import check_files
from .pair import Pair
from .weights import ModelSource, best_device, load_model, read_tokenizer

if TYPE_CHECKING:
    from ..core.protocols import LanguageModel
    from ..core.states import DraftHead
    from .load import Asked


def load_builtin(_: object, asked: Asked) -> Pair:
    """The built-in pair. Raises `PairError` if one of its files is not as it was published."""
    folders = [ASSETS / "pair" / name for name in ("target", "draft", "head")]
    for folder in folders:
        check_files(folder)
    place, options = asked.device or best_device(), asked.options
    if options[0].dtype is None and place.type == "cpu" and has_numba():
        # As it is stored: compiled passes read such weights in place, and compute in fp32.
        options = (
            replace(options[0], dtype=torch.bfloat16),
            replace(options[1], dtype=torch.bfloat16),
        )
    sources = [ModelSource(str(folder), folder) for folder in folders]
    tokenizers = [read_tokenizer(source) for source in sources[:2]]
    target = load_model(sources[0], replace(options[0], device=place), asked.on_progress)
    pair = Pair(target=target, draft=None, tokenizer=tokenizers[0], name=BUILTIN)
    place = pair.device
    draft = load_model(sources[1], replace(options[1], device=place), asked.on_progress)
    head = HeadOnDemand(lambda: _head(folders[2], target, place))
    pair = replace(pair, draft=draft, draft_tokenizer=tokenizers[1])
    return replace(pair, head=cast("DraftHead", head))


def _head(folder: Path, target: object, place: torch.device) -> DraftHead:
    from .heads.eagle_files import load_head  # a run without it need not know heads

    return load_head(str(folder), target, place)


class HeadOnDemand:
    """A head whose weights are read when it is first used: most runs draft with something else.

    load: reads it, and checks that it was made for its target.
    """

    def __init__(self, load: Callable[[], DraftHead]) -> None:
        self._load = load

    @cached_property
    def loaded(self) -> DraftHead:
        """The head itself."""
        return self._load()

    def check(self, target: LanguageModel) -> None:
        """Nothing: reading it does."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copies and pickles ask of any object
            raise AttributeError(name)
        return getattr(self.loaded, name)
