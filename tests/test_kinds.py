"""The tables of kinds, and the words that the page's JavaScript reads."""

from __future__ import annotations

import inspect

from specviz import vocabulary
from specviz.core.kinds import resolved
from specviz.kinds import (
    DRAFTERS,
    ENGINES,
    NONE,
    VERDICTS,
    drafter_kind,
    drafter_names,
    drafters_for,
    verdict_kind,
)

OURS = list(map(drafter_kind, DRAFTERS))
RULES = list(map(verdict_kind, VERDICTS))


def test_every_record_names_code_that_is_there():
    for kind in (*OURS, *RULES, *ENGINES):
        for field in ("make", "decide", "numbers", "after", "described", "deployed"):
            reference = getattr(kind, field, None)
            if reference is not None:
                assert callable(resolved(reference)), (kind.name, field)


def test_a_record_stands_under_its_own_name():
    for table, records in ((DRAFTERS, OURS), (VERDICTS, RULES)):
        assert list(table) == [kind.name for kind in records]


def test_verdicts_take_what_the_token_rule_takes():
    token, *_ = RULES
    wanted = list(inspect.signature(resolved(token.decide)).parameters)
    for kind in RULES:
        assert list(inspect.signature(resolved(kind.decide)).parameters) == wanted


def test_a_pair_drafts_with_a_part_of_its_own_by_default():
    assert drafters_for(["draft", "head", "layers"])[:2] == ("model", "head")
    assert drafters_for(["head"])[0] == "head"
    assert drafters_for([]) == ("ngram", "suffix", "none")
    assert drafter_names()[-1] == NONE


def test_the_words_of_the_page_are_those_of_the_tables():
    """`python -m specviz.vocabulary` writes them."""
    assert vocabulary.FILE.read_text("utf-8") == vocabulary.written()
