"""Weights of 8, 5 and 4 bits on a processor: the nearest codes, and exact lanes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from bare_rounds import short_texts
from model_families import build
from sentences import Sentences
from toy_models import llama

from specviz import Pair, generate, load_pair, race
from specviz.base.environment import has_numba
from specviz.base.errors import PairError
from specviz.core.cost import pass_cost
from specviz.core.engine_choice import make_engine
from specviz.core.events import Header
from specviz.core.lanes import SPECULATIVE
from specviz.core.model_facts import parameter_bytes, parameter_count, pass_weights, weights_form
from specviz.core.settings import Settings
from specviz.files.few_bits.unpacking import packed
from specviz.files.memory import DRAFT_KINDS, KINDS
from specviz.files.packed import PackedLinear
from specviz.files.weights import LoadOptions
from specviz.inspect.equivalence import SIGNIFICANCE, chi_square, tail
from specviz.pairs.models import with_draft_bits
from specviz.pairs.quantize import quantize_on_processor
from specviz.pairs.table import named_pair

pytestmark = pytest.mark.skipif(not has_numba(), reason="passes are not compiled here")

PROMPT = "Once upon a time"


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_each_code_is_the_nearest_one(kind: str) -> None:
    weights = torch.randn(16, 96, generator=torch.Generator().manual_seed(1))
    weights[0, :32] = 0
    weights[1, :32] = 3.5
    blocks = packed(weights, kind).numpy()
    numbers = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind])
    groups = weights.numpy().reshape(-1, 32)
    spread = groups.max(1) - groups.min(1) if kind == "Q4_1" else 2 * np.abs(groups).max(1)
    steps = spread / (15 if kind == "Q4_1" else 254)
    off = np.abs(numbers - weights.numpy()).reshape(-1, 32).max(1)
    # Scale and minimum are rounded to fp16, which shifts the outermost codes a little.
    assert (off <= 0.5 * steps + 2e-3 * np.abs(groups).max(1)).all()


@pytest.fixture(scope="module")
def usual() -> Pair:
    return load_pair("builtin")


@pytest.fixture(scope="module")
def wanted(usual: Pair) -> str:
    """The text of the pair with its usual draft."""
    return generate(usual, PROMPT, temperature=0.0, max_new_tokens=48).text


@pytest.mark.parametrize("bits", sorted(KINDS))
def test_a_draft_of_few_bits_changes_no_word_of_the_target(
    usual: Pair, wanted: str, bits: str
) -> None:
    pair = load_pair("builtin", draft_quantize=bits)
    assert pair.draft is not None and usual.draft is not None
    kind = DRAFT_KINDS[bits]
    assert weights_form(pair.draft) == kind and weights_form(pair.target) == "bfloat16"
    assert make_engine(pair.draft, pair.vocab).name == "compiled"
    assert parameter_bytes(pair.draft) < parameter_bytes(usual.draft)
    assert parameter_count(pair.draft) == parameter_count(usual.draft)
    result = generate(pair, PROMPT, temperature=0.0, max_new_tokens=48)
    assert result.text == wanted
    assert result.metrics.alpha > 0.5
    header = next(iter(race(pair, PROMPT, max_new_tokens=2)))
    assert isinstance(header, Header)
    assert header.drafts[SPECULATIVE] is not None
    assert header.drafts[SPECULATIVE]["weights"] == kind


def test_a_target_of_few_bits_is_another_model_and_says_so() -> None:
    pair = load_pair("builtin", quantize="4bit")
    header = next(iter(race(pair, PROMPT, max_new_tokens=2)))
    assert isinstance(header, Header)
    assert header.dtype == "Q4_1" and header.target["weights"] == "Q4_1"
    ids = torch.tensor([pair.encode(PROMPT)])
    plain = pair.target.generate(ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1] :]
    for drafter in pair.drafters:
        result = generate(pair, PROMPT, temperature=0.0, max_new_tokens=8, drafter=drafter)
        written = [token.id for each in result.rounds for token in each.emitted]
        assert written == plain.tolist(), drafter


def test_texts_through_both_models_of_few_bits_follow_the_target() -> None:
    pair = load_pair("builtin", quantize="4bit", draft_quantize="5bit")
    ids = pair.encode(PROMPT)
    settings = Settings(
        temperature=1.0, top_k=4, gamma=2, seed=5, max_new_tokens=2, ignore_eos=True
    )
    runs = 400  # they expose the colder distribution below in 92 of 100 simulations
    seen = Counter(short_texts(pair, ids, settings, count=runs, shown=2))
    with torch.inference_mode():
        first = pair.target(torch.tensor([ids])).logits[0, -1, : pair.vocab].double().topk(4)
        both = torch.tensor([[*ids, one] for one in first.indices.tolist()])
        then = pair.target(both).logits[:, -1, : pair.vocab].double().topk(4)
    chances = first.values.softmax(0)[:, None] * then.values.softmax(1)
    law = {
        (one, other): chances[i, j].item()
        for i, one in enumerate(first.indices.tolist())
        for j, other in enumerate(then.indices[i].tolist())
    }
    statistic, degrees = chi_square(seen, law, runs)
    assert degrees >= 4
    assert (tail(statistic, degrees) or 0.0) > SIGNIFICANCE
    settings = replace(settings, temperature=0.7)
    colder = Counter(short_texts(pair, ids, settings, count=runs, shown=2))
    assert (tail(*chi_square(colder, law, runs)) or 0.0) < SIGNIFICANCE, "another law is told"


def test_a_model_that_passes_do_not_read_gets_a_sentence(sentences: Sentences) -> None:
    with sentences.raises(PairError):
        quantize_on_processor(build("gpt 2"), "gpt2", "4bit")


def test_tied_weights_stay_one_memory() -> None:
    model = build("qwen 2")
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    quantize_on_processor(model, "toy", "8bit", "fp32")
    assert isinstance(model.lm_head, PackedLinear)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied


@pytest.mark.parametrize("family", ["qwen 2", "llama"])
def test_a_draft_of_five_bits_has_an_embedding_table_of_its_own(family: str) -> None:
    model = build(family)
    count = parameter_count(model)
    quantize_on_processor(model, "toy", "5bit", is_draft=True)
    assert model.lm_head.packed_as == "Q5_0"
    assert model.model.embed_tokens.packed_as == "Q8_0"
    assert parameter_count(model) == count


def test_a_pass_of_integer_products_costs_its_bytes_and_no_unpacking() -> None:
    five, eight = (llama(2048, hidden_size=384, intermediate_size=768) for _ in range(2))
    quantize_on_processor(five, "toy", "5bit", is_draft=True)
    quantize_on_processor(eight, "toy", "8bit", "fp32")
    weights = pass_weights(five)
    assert weights.packed == 0 and weights.packed_bytes == 0
    assert pass_cost(five, "compiled") < pass_cost(eight, "compiled")


def test_five_bits_are_for_drafts_on_a_processor(sentences: Sentences) -> None:
    with sentences.raises(PairError):
        load_pair("builtin", quantize="5bit")
    with sentences.raises(PairError):
        load_pair("builtin", draft_quantize="3bit")
    for device in (torch.device("cuda"), None):
        with sentences.raises(PairError):
            LoadOptions(quantize="5bit", device=device).arguments()


def test_a_row_gives_its_draft_the_bits_that_it_says_unless_told_otherwise() -> None:
    row = named_pair("qwen2.5-coder-1.5b")
    assert row is not None and row.draft_name is not None
    assert row.draft_name.endswith(", 4 bits")
    usual = (LoadOptions(), LoadOptions())
    assert row.draft_file is not None
    bits = row.draft_bits(f"/somewhere/{row.draft_file.name}")
    assert bits == "4bit" and row.draft_bits("another/draft") is None
    assert with_draft_bits(usual, bits) == (LoadOptions(), LoadOptions(quantize=bits))
    for told in (LoadOptions(quantize="8bit"), LoadOptions(torch.bfloat16)):
        assert with_draft_bits((LoadOptions(), told), bits) == (LoadOptions(), told)
    assert with_draft_bits(usual, None) == usual
