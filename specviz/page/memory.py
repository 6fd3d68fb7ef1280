"""The last runs of each visitor who asks for it, to draft from in the next one.

They stay in this process, by the session of the visitor's tab: nobody else's run can read them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

KEPT_RUNS = 4  # of a visitor
KEPT_SESSIONS = 200

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
