"""The run of a visitor: the page's own endpoint, which tells the browser what happens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import orjson

from ..base.errors import SpecvizError
from ..base.logs import brief
from ..core.settings import Settings
from .choices import Offers, chosen_pair
from .controls import (
    DEFAULTS,
    checked_others,
    checked_prompt,
    checked_settings,
    compared_with,
)
from .delivery import delta_of, deltas
from .endpoints import Endpoints
from .failures import sentence
from .jobs import Run
from .queue import RunQueue
from .security.requests import NOT_OURS, is_plain

log = logging.getLogger(__name__)

LONGEST_SESSION = 64  # characters of the name of a tab


def add_run(endpoints: Endpoints, runs: RunQueue, offers: Offers, page_pair: str) -> None:
    """Add the endpoint. offers: drafters of pairs. page_pair: the pair that the page was started
    with."""

    def run(asked: str) -> Iterator[str]:
        """Race all lanes for the page; yields deltas for its player. asked: JSON, an object with
        the "session" of a tab and the values of all controls by name."""
        wish, session = _read(asked)
        try:
            wanted = _run_of(wish, session, offers, page_pair)
        except SpecvizError as error:
            refused = Run(session, "", "", Settings())
            refused.refuse(str(error))
            yield delta_of(refused.state(""))
            return
        yield from deltas(runs, wanted)

    endpoints.add(run, is_public=False)


def _read(text: str) -> tuple[dict[str, Any], str]:
    """A visitor's wish, and the name of his tab. Raises `gr.Error`."""
    try:
        wish = orjson.loads(text)
        session = wish["session"]
        missing = {"prompt", "pair", "lanes", *DEFAULTS} - wish.keys()
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        log.info("a wish for a run made no sense: %s", brief(error))
        raise sentence(NOT_OURS) from None
    if missing or not isinstance(session, str) or not 0 < len(session) <= LONGEST_SESSION:
        raise sentence(NOT_OURS)
    if not all(map(is_plain, wish.values())):
        log.info("a wish for a run holds lists or objects")
        raise sentence(NOT_OURS)
    return wish, session


def _run_of(wish: dict[str, Any], session: str, offers: Offers, page_pair: str) -> Run:
    settings = checked_settings({name: wish[name] for name in DEFAULTS})
    naming = (wish.get(name) for name in ("pair", "target", "draft", "weights"))
    pair = chosen_pair(*naming, page_pair=page_pair)
    prompt = checked_prompt(wish["prompt"])
    compared = compared_with(settings, wish["lanes"], offers.of(pair))
    return Run(session, pair, prompt, settings, checked_others(settings, compared))
