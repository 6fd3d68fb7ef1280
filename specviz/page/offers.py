"""Which drafters a pair offers, as far as the page knows before the pair is loaded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from ..environment import REMOTE, SERVED
from ..kinds import drafter_names, drafters_for
from ..pairs.spec import NO_DRAFT, ServedSpec, operator_spec
from ..pairs.table import named_pair
from ..worker.loading import pair_and_options

KEPT_PAIRS = 200


def listed_drafters(pair: str) -> tuple[str, ...] | None:
    """The drafters of a pair whose name tells them, its default first; None for another."""
    row = named_pair(pair)
    if row is not None:
        return row.drafters
    if pair.endswith(f"+{NO_DRAFT}"):
        return drafters_for(["layers"])
    if pair != SERVED or REMOTE.read() is None or not isinstance(operator_spec(), ServedSpec):
        return None
    return drafters_for(["draft"])


class Offers:
    """The drafters of pairs by name: of those that the page lists, and of those that the doctor has
    examined."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def of(self, pair: str) -> tuple[str, ...]:
        """The drafters of this pair, its default first; all there are if nothing is known of it."""
        name, _ = pair_and_options(pair)
        with self._lock:
            known = self._known.get(name)
        return listed_drafters(name) or known or drafter_names()

    def learn(self, pair: str, drafters: Sequence[str]) -> None:
        """Remember what a pair offers; nothing is remembered if `drafters` is empty."""
        name, _ = pair_and_options(pair)
        with self._lock:
            if drafters:
                self._known[name] = tuple(drafters)
                self._known.move_to_end(name)
            while len(self._known) > KEPT_PAIRS:
                self._known.popitem(last=False)
