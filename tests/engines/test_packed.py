"""The packed form gives its model's own logits, whatever the width, the shape and the kernel."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from toy_models import llama

from specviz.engines.eager import EagerEngine
from specviz.engines.packed import forward as passes
from specviz.engines.packed import matmul as products
from specviz.engines.packed import support as packed
from specviz.engines.packed import weights as layout
from specviz.engines.packed.forward import PackedEngine
from specviz.engines.packed.matmul import BlockedProduct, PackedProduct, new_rows, small_kernels
from specviz.engines.packed.support import packed_model

VOCAB = 75  # two blocks and a rest
KINDS: list[Any] = [PackedProduct, BlockedProduct]


def grouped(**config: Any) -> Any:
    """Two layers, four heads over two of keys, one of them padded to more than its width."""
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    defaults = {**sizes, "intermediate_size": 40, "head_dim": 12, "initializer_range": 0.2}
    return llama(VOCAB, **{**defaults, **config})


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both layouts, whichever this processor would choose."""
    if request.param is BlockedProduct and not small_kernels():
        pytest.skip("this NumPy would start threads of its own")
    monkeypatch.setattr(layout, "product", request.param)
    return request.param


def engine_of(model: Any) -> PackedEngine:
    return PackedEngine(layout.PackedModel(model, VOCAB))


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("biases", [False, True])
def test_passes_of_every_width_give_the_models_own_logits(kind: Any, biases: bool) -> None:
    model = grouped(attention_bias=biases, mlp_bias=biases)
    if biases:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.endswith("bias"):
                    weight.normal_()
    ids = torch.randint(VOCAB, (170,), generator=torch.Generator().manual_seed(0))
    engine, place = engine_of(model), 0
    ours = []
    for width in [*range(1, 18), 1, 1, 2]:
        ours.append(engine.forward(ids[place : place + width], width))
        place += width
    with torch.inference_mode():
        wanted = model(ids[None, :place]).logits[0]
    close(torch.cat(ours), wanted)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 67, 128, 300])
@pytest.mark.parametrize("keep", [1, 3, 70, 300])
def test_a_long_prompt_is_fed_in_blocks(length: int, keep: int) -> None:
    model, keep = grouped(), min(keep, length)
    ids = torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        close(engine_of(model).forward(ids, keep), model(ids[None]).logits[0, -keep:])


@pytest.mark.parametrize("length", [1, 6, 70])
def test_logits_come_over_a_number(kind: Any, length: int) -> None:
    model = grouped()
    ids = torch.arange(length) % VOCAB
    for engine in (engine_of(model), EagerEngine(model, VOCAB)):
        wanted = engine.forward(ids, length) / 0.7
        engine.rollback(0)
        close(engine.forward(ids, length, temperature=0.7), wanted)


def test_logits_stay_when_the_engine_goes_on() -> None:
    """A drafter keeps the rows of all its steps."""
    engine = engine_of(grouped())
    first = engine.forward(torch.tensor([3]), 1)
    kept = first.clone()
    engine.forward(torch.tensor([4]), 1)
    assert torch.equal(first, kept)


def test_rolled_back_tokens_leave_no_trace() -> None:
    engine, ids = engine_of(grouped()), torch.arange(20)
    engine.forward(ids, 1)
    wanted = engine.forward(torch.tensor([7, 8]), 2)
    for count in (3, 150):  # the second makes the cache grow
        engine.rollback(20)
        engine.forward(torch.arange(count) % VOCAB, 1)
    engine.rollback(20)
    assert torch.equal(engine.forward(torch.tensor([7, 8]), 2), wanted)


def test_a_shallow_pass_is_the_model_cut_off() -> None:
    model, ids = grouped(num_hidden_layers=3), torch.arange(10)
    cut = copy.deepcopy(model)
    cut.model.layers = cut.model.layers[:2]
    cut.config.num_hidden_layers = 2
    engine, eager = engine_of(model), EagerEngine(cut, VOCAB)
    close(engine.forward(ids, 4, layers=2), eager.forward(ids, 4))
    engine.rollback(0)
    close(engine.forward(ids, 4), EagerEngine(model, VOCAB).forward(ids, 4))


def test_both_layouts_of_a_product_agree_with_torch() -> None:
    generator = torch.Generator().manual_seed(2)
    for outputs, inputs in [(300, 260), (64, 32), (33, 7), (5, 600), (1, 1)]:
        weight = torch.randn(outputs, inputs, generator=generator)
        bias = torch.randn(outputs, generator=generator)
        for made in KINDS:
            for rows in (1, 2, 6, 9):
                x, out = new_rows(rows, inputs), new_rows(rows, outputs)
                x.tensor.normal_(generator=generator)
                made(weight, bias).into(x, out)
                wanted = torch.nn.functional.linear(x.tensor, weight, bias)
                torch.testing.assert_close(out.tensor, wanted, rtol=1e-4, atol=1e-3)


def test_a_pass_repeats_to_the_last_bit() -> None:
    """Or a seed would not write the same text again."""
    model, ids = grouped(), torch.arange(60) % VOCAB
    runs = []
    for shift in range(4):
        spare = torch.empty(1 + 7 * shift)  # whatever else the process holds
        engine = engine_of(model)
        rows = [engine.forward(ids[:50], 1)]
        rows += [engine.forward(ids[50 + i : 51 + i], 1) for i in range(4)]
        runs.append(torch.cat([*rows, engine.forward(ids[54:], 6)]))
        del spare
    assert all(torch.equal(run, runs[0]) for run in runs)


WRONG = {
    "a product": (products.BlockedProduct, "into", lambda self, x, out: out.tensor.fill_(0.1)),
    "a mask": (passes, "_future", lambda n: None),
    "a rotation": (layout, "_rotation", lambda rotary, n: torch.ones(n, 1, 6) + 0j),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_form_with_other_logits_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, wrong = WRONG[name]
    monkeypatch.setattr(place, attribute, wrong)
    if place is products.BlockedProduct:
        monkeypatch.setattr(layout, "product", place)
    model = grouped()
    with pytest.warns(UserWarning, match="gave other logits; using the plain one") as caught:
        assert packed_model(model, VOCAB) is None
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert packed_model(model, VOCAB) is None, "one warning is enough"


def test_an_operation_that_is_missing_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(layout, "product", missing)
    with pytest.warns(UserWarning, match="cannot run here .no such kernel.; using the plain one"):
        assert packed_model(grouped(), VOCAB) is None


def test_weights_changed_in_place_are_laid_out_anew() -> None:
    model = grouped()
    first = packed_model(model, VOCAB)
    assert packed_model(model, VOCAB) is first
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    again = packed_model(model, VOCAB)
    assert again is not None and again is not first
    ids = torch.arange(5)
    with torch.inference_mode():
        close(PackedEngine(again).forward(ids, 5), model(ids[None]).logits[0])


def test_another_number_of_threads_is_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    model = grouped()
    first = packed_model(model, VOCAB)
    monkeypatch.setattr(packed, "threads", lambda: 7)
    assert packed_model(model, VOCAB) is not first
