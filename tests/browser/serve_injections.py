"""Serve the page with two models that write only texts that have broken pages."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "helpers"), str(TESTS.parent)]

from injection_texts import CORPUS, MARKUP  # noqa: E402
from page_server import NOWHERE  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from toy_models import llama, relative  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

from specviz import Pair, race  # noqa: E402
from specviz.page.server import build_page  # noqa: E402
from specviz.worker.local import LocalWorker  # noqa: E402


def hostile_pair(*_: object) -> Pair:
    """A pair in which every token is one of the texts, and the models have two of them as names."""
    vocab = {text: place for place, text in enumerate(CORPUS)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=CORPUS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\n", "removed")
    target = llama(len(vocab))
    draft = relative(target, noise=0.3)
    target.config.name_or_path = target.name_or_path = MARKUP[0]
    draft.config.name_or_path = draft.name_or_path = MARKUP[3]
    return Pair(
        target=target, draft=draft, tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    )


if __name__ == "__main__":
    worker = LocalWorker(hostile_pair, race)
    page = build_page(worker, recordings=NOWHERE, doctor=worker)
    page.serve(quiet=True)
    signal.pause()
