"""The records of kinds, and the words that the page's JavaScript reads."""

from __future__ import annotations

import inspect
import subprocess
import sys

from places import ROOT

from specviz.core import registry
from specviz.core.registry import drafters_for
from specviz.kinds import DRAFTERS, ENGINES, VERDICTS
from specviz.runs import vocabulary

HEAVY = ("torch", "numpy", "transformers", "numba", "huggingface_hub", "gradio")


def test_every_record_is_found_by_its_name():
    assert [registry.drafter_kind(kind.name) for kind in DRAFTERS] == list(DRAFTERS)
    assert [registry.verdict_kind(kind.name) for kind in VERDICTS] == list(VERDICTS)
    assert [registry.engine_kind(kind.name) for kind in ENGINES] == list(ENGINES)


def test_records_need_no_heavy_library():
    """The page, and command lines that run no model, read all records."""
    code = f"import specviz, sys; sys.exit(bool(set({HEAVY}) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_verdicts_take_what_the_token_rule_takes():
    token, *_ = VERDICTS
    wanted = list(inspect.signature(token.decide).parameters)
    for kind in VERDICTS:
        assert list(inspect.signature(kind.decide).parameters) == wanted


def test_a_pair_drafts_with_a_part_of_its_own_by_default():
    assert drafters_for(["draft", "head", "layers"])[:2] == ("model", "head")
    assert drafters_for(["head"])[0] == "head"
    assert drafters_for([]) == ("ngram", "suffix", "none")
    assert registry.drafter_names()[-1] == "none"
    assert "none" not in registry.swept_drafters()


def test_the_words_of_the_page_are_those_of_the_tables():
    """`python -m specviz.runs.vocabulary` writes the page's file of words."""
    assert vocabulary.FILE.read_text("utf-8") == vocabulary.written()
