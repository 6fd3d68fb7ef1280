"""Match the models on this machine: which of them can draft for which, the best first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from itertools import chain
from math import log
from typing import TypeAlias

from ..files.findings import GOOD_RATIO, POOR_RATIO
from ..files.local_models import Listing, StoredModel, list_models, short_name, store_of
from ..files.memory import COUNTED_LANES, DRAFTING_LANES, shown_bytes
from .local_facts import (
    Damaged,
    Head,
    LocalModel,
    UnsupportedModel,
    read_facts,
    sharing_vocabularies,
)

MIN_RATIO = 1.8  # parameters of the target / of the draft, below which nothing can be gained
MAX_DRAFTS = 3  # of a target, where the best are listed

# What makes a draft worse, in the unit of a ratio that is e times off.
TUNED_OTHERWISE = 1.0
OTHER_NAME = 0.7


@dataclass(frozen=True)
class Match:
    """A target and a draft with its tokenizer."""

    target: LocalModel
    draft: LocalModel
    bytes: int  # the memory of both with caches in all lanes
    fits: bool  # whether that much is free

    @property
    def name(self) -> str:
        """The name of the pair."""
        return f"{self.target.name}+{self.draft.name}"

    @property
    def ratio(self) -> float:
        """The target's parameters / the draft's."""
        return self.target.parameters / self.draft.parameters

    @property
    def pays(self) -> bool:
        """Whether the draft is small enough to save more than it costs."""
        return self.ratio >= POOR_RATIO

    @cached_property
    def penalty(self) -> float:
        """The distance from an ideal draft: a tenth of the target's size, the same family name, and
        tuned for chat if the target is."""
        penalty = abs(log(self.ratio / GOOD_RATIO))
        if self.target.is_chat != self.draft.is_chat:
            penalty += TUNED_OTHERWISE
        likeness = _likeness(_family(self.target), _family(self.draft))
        return penalty + OTHER_NAME * (1 - likeness)

    @property
    def title(self) -> str:
        """Both models by their display names."""
        return f"{short_name(self.target.name)} + {short_name(self.draft.name)}"

    @property
    def stores(self) -> str:
        """The programs that store them, the target's first."""
        labels = []
        for model in (self.target, self.draft):
            store = store_of(model.name)
            if store is not None and store.label not in labels:
                labels.append(store.label)
        return " + ".join(labels)

    @property
    def shown(self) -> str:
        """Both models, and the programs that store them."""
        return f"{self.title} · {self.stores}"

    @property
    def remark(self) -> str:
        """The memory that it needs, and reasons against it."""
        size = shown_bytes(self.bytes)
        remark = f"{size}: too large here"
        if self.fits:
            remark = f"fits, {size}"
        if not self.pays:
            remark += ", draft hardly smaller"
        return remark


@dataclass(frozen=True)
class LocalPairs:
    """The models on this machine, the pairs that they form, and the number of models left out.

    matches: the drafts of each target, the best first. Targets with a better best draft come first,
    and pairs that do not fit last.
    """

    models: tuple[LocalModel, ...]
    matches: tuple[Match, ...]
    skipped: str

    @cached_property
    def best(self) -> tuple[Match, ...]:
        """The first `MAX_DRAFTS` drafts of each target."""
        counts: Counter[str] = Counter()
        best = []
        for match in self.matches:
            counts[match.target.name] += 1
            if counts[match.target.name] <= MAX_DRAFTS:
                best.append(match)
        return tuple(best)

    @cached_property
    def alone(self) -> tuple[LocalModel, ...]:
        """The models without a draft on this machine."""
        targets = {match.target.name for match in self.matches}
        return tuple(model for model in self.models if model.name not in targets)


def find_local_pairs(free: int, *, cpu: bool) -> LocalPairs:
    """Find the pairs among the models on this machine. free: free bytes of the device, or of all
    GPUs together. cpu: whether the device is a processor."""
    listing = list_models()
    models = _facts_of(listing)
    matches = matched(models, free, cpu=cpu)
    return LocalPairs(tuple(models), matches, listing.sentence)


_Stamp: TypeAlias = tuple[str, int, int]
_known_facts: dict[_Stamp, LocalModel] = {}
"""Facts of models by file stamp, so that an unchanged model is read once."""


def _facts_of(listing: Listing) -> list[LocalModel]:
    """The facts of all models; those that cannot be read are counted as left out."""
    models = []
    stamps = set()
    with sharing_vocabularies():
        for model in listing.models:
            try:
                stamp = _stamp(model)
                facts = _known_facts.get(stamp) or read_facts(model)
            except Head:
                continue
            except UnsupportedModel:
                listing.skipped["kind"] += 1
            except (Damaged, OSError):
                listing.skipped["broken"] += 1
            else:
                stamps.add(stamp)
                _known_facts[stamp] = facts
                models.append(facts)
    for stamp in _known_facts.keys() - stamps:
        _known_facts.pop(stamp, None)  # of what is gone
    return models


def _stamp(model: StoredModel) -> _Stamp:
    """A stamp that changes with the model's files."""
    path = model.path
    if path.is_dir():
        path = path / "config.json"
    status = path.stat()
    return model.name, status.st_size, status.st_mtime_ns


def matched(models: Sequence[LocalModel], free: int, *, cpu: bool) -> tuple[Match, ...]:
    """Pairs of these models with the same tokenizer and a smaller draft, in the order of
    `LocalPairs.matches`."""
    by_target: list[list[Match]] = []
    for target in models:
        matches = []
        for draft in models:
            is_smaller = target.parameters >= MIN_RATIO * draft.parameters
            if is_smaller and can_draft(draft, target):
                matches.append(_match(target, draft, free, cpu=cpu))
        if matches:
            by_target.append(sorted(matches, key=_rank))
    by_target.sort(key=lambda matches: _rank(matches[0]))
    return tuple(chain.from_iterable(by_target))


def can_draft(draft: LocalModel, target: LocalModel) -> bool:
    """Whether both have the same tokenizer in the sense of `Pair`: the draft has every token that
    the target can emit, under the same id."""
    if draft.vocabulary is None or target.vocabulary is None:
        return False
    count = min(target.vocabulary.used, target.width)
    return draft.width >= count and draft.vocabulary.begins_with(target.vocabulary, count)


def _match(target: LocalModel, draft: LocalModel, free: int, *, cpu: bool) -> Match:
    target_bytes = target.memory(COUNTED_LANES, cpu=cpu)
    draft_bytes = draft.memory(DRAFTING_LANES, cpu=cpu)
    need = target_bytes + draft_bytes
    return Match(target, draft, bytes=need, fits=need <= free)


def _rank(match: Match) -> tuple[bool, bool, float, str]:
    return not match.fits, not match.pays, match.penalty, match.name


@lru_cache(maxsize=10_000)
def _likeness(first: str, second: str) -> float:
    """How alike two names are, from 0 to 1."""
    return SequenceMatcher(None, first, second).ratio()


def _family(model: LocalModel) -> str:
    """A model's name without its numbers of parameters and bits."""
    name = model.called.rpartition("/")[2].lower().replace("_", "-")
    words = []
    for word in name.split("-"):
        digits = word.rstrip("bmk").replace(".", "")
        if not digits.isdigit():
            words.append(word)
    return "-".join(words)
