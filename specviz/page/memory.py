"""What the page remembers: the last runs of each visitor who asks for it, to draft from in the next
one, and which drafters a pair offers, as far as that is known before the pair is loaded.

Runs stay in this process, by the session of the visitor's tab: nobody else's run can read them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence

from ..environment import REMOTE, SERVED
from ..kinds import drafter_names, drafters_for
from ..pairs.spec import NO_DRAFT, ServedSpec, operator_spec
from ..pairs.table import named_pair
from ..worker.loading import pair_and_options

KEPT_RUNS = 4  # of a visitor
KEPT_SESSIONS = 200
KEPT_PAIRS = 200

Ids = tuple[int, ...]


class Memories:
    """Texts of visitors' runs as ids, by session and pair: ids of one tokenizer mean nothing to
    another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, deque[tuple[str, Ids]]] = OrderedDict()

    def of(self, session: str, pair: str) -> tuple[Ids, ...]:
        """The texts of this visitor's last runs with this pair, the oldest first."""
        with self._lock:
            return tuple(ids for name, ids in self._kept.get(session, ()) if name == pair)

    def add(self, session: str, pair: str, ids: Ids) -> None:
        """Keep a text in place of the visitor's oldest; the visitor who has been away longest is
        forgotten where there are too many."""
        with self._lock:
            texts = self._kept.setdefault(session, deque(maxlen=KEPT_RUNS))
            texts.append((pair, ids))
            self._kept.move_to_end(session)
            while len(self._kept) > KEPT_SESSIONS:
                self._kept.popitem(last=False)

    def forget(self, session: str) -> None:
        """Forget all runs of a visitor."""
        with self._lock:
            self._kept.pop(session, None)


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
