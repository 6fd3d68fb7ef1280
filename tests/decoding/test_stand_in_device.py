"""Decoding on a device other than the host: tensors of both never mix, and the host waits once a
round.

The stand-in refuses what CUDA would refuse. Speed, kernels and captures need a GPU: see
tests/engines/test_cuda.py.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from all_pairs import all_pairs
from bare_rounds import bare_rounds
from model_families import build
from reference_distribution import chain_p_value
from sentences import Sentences
from stand_in_device import (
    DEVICE,
    MixedDevices,
    StandInTensor,
    host_waits,
    on_device,
    stand_in,
)
from toy_heads import random_head
from toy_models import emitted_ids, generated, llama, mini, pair_of, relative

import specviz.sides.fast_gpu.engine
from specviz import Pair, Settings, VerdictKind, baseline, race, speculate
from specviz.base.errors import KindError, ModelError
from specviz.core import registry
from specviz.core.engine_choice import make_engine
from specviz.core.loop import start_lane
from specviz.core.paths import other_rule_of
from specviz.core.tensor_draws import probabilities
from specviz.core.tensor_verdict import decide_on_tensors
from specviz.core.views import copied
from specviz.sides.fast_gpu.llama_pass import MAX_TOKENS, LlamaPass

pytestmark = pytest.mark.usefixtures(stand_in.__name__)

PROMPT = [3, 1, 4, 1, 3, 1]
VOCAB = 1200  # longer than the short list of top-p
DRAFTERS = ("model", "ngram", "early-exit", "head")
SAMPLERS = {
    "greedy": {},
    "temperature": {"temperature": 0.8},
    "tiny": {"temperature": 1e-4},
    "top-k": {"temperature": 1.0, "top_k": 9},
    "top-p": {"temperature": 1.5, "top_p": 0.9},
    "both": {"temperature": 1.0, "top_k": 9, "top_p": 0.8},
}


@pytest.fixture(scope="module")
def on_host() -> Pair:
    target = llama(VOCAB, num_hidden_layers=2, initializer_range=0.2)
    return pair_of(target, relative(target, noise=0.1))


@pytest.fixture(scope="module")
def pair(on_host: Pair) -> Pair:
    models = (on_host.target, on_host.draft, random_head(on_host.target))
    target, draft, head = (on_device(copy.deepcopy(m)) for m in models)
    head.embedding = target.get_input_embeddings().weight.detach()
    return pair_of(target, draft, head=head)


FORMS = ("eager", "static")


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "static":
        monkeypatch.setenv("SPECVIZ_FORM", "static")
        monkeypatch.setattr("specviz.sides.fast_gpu.cache.SMALLEST", 16)
    yield request.param
    specviz.sides.fast_gpu.engine._pools.clear()


# Each drafter meets each form, and each form each sampler. A drafter's work depends on whether
# it draws, and on whether its distribution is truncated.
KINDS_OF_ROUNDS = [
    *(
        tuple(case.values())
        for case in all_pairs(
            form=FORMS, drafter=DRAFTERS, sampler=["greedy", "temperature", "both"]
        )
    ),
    *itertools.product(FORMS, ["model"], ["tiny", "top-k", "top-p"]),
    ("eager", "none", "greedy"),
    ("static", "none", "top-p"),
]


@pytest.mark.filterwarnings("error:the static form")
@pytest.mark.parametrize(("form", "drafter", "sampler"), KINDS_OF_ROUNDS, indirect=["form"])
def test_a_round_copies_its_verdict_and_then_its_numbers(
    pair: Pair, form: str, drafter: str, sampler: str
):
    settings = Settings(gamma=3, max_new_tokens=7, drafter=drafter, **SAMPLERS[sampler])
    lane = "baseline" if drafter == "none" else "speculative"
    run = start_lane(pair, PROMPT, settings, lane)
    # CUDA graphs return no hidden states.
    assert run.target_engine.name == ("eager" if drafter == "head" else form)
    run.prefill()
    drafted = 0
    while run.ended is None:
        gamma = run.gamma()
        with torch.inference_mode():
            with host_waits() as in_clock:
                draft = run.drafter.draft(run.ids, gamma) if gamma else None
                judged = run.path.judge(run.ids, draft)
                emitted = run.commit(judged)
            with host_waits() as for_the_reader:
                ended = run.ended is not None
                tokens = run.annotator.tokens(judged, emitted, 0, ended)
        assert in_clock == ["tolist"], "the verdict"
        assert for_the_reader == ["_to_copy"], "what the cards show"
        assert isinstance(judged.p, StandInTensor)
        assert len(tokens[0]) == len(judged.ids) and tokens[1] is not None
        drafted += len(judged.ids)
    assert drafted > 0 or drafter == "none"


def foreign(name: str, decide: Callable[..., Any]) -> VerdictKind:
    return VerdictKind(name=name, decide=decide, label=name, package="them 1.0")


def test_the_check_of_a_foreign_rule_makes_no_host_wait(
    pair: Pair, form: str, monkeypatch: pytest.MonkeyPatch
):
    """Its rule may run inside a captured graph, where a read on the host fails."""
    calls = []

    def decide(*inputs: Any) -> torch.Tensor:
        calls.append(len(inputs))
        return decide_on_tensors(*inputs)

    monkeypatch.setitem(registry.known_verdicts, "usual", foreign("usual", decide))
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=7, verdict="usual")
    run = start_lane(pair, PROMPT, settings, "speculative")
    run.prefill()
    assert run.target_engine.name == form and run.whole_rounds is None
    while run.ended is None:
        with host_waits() as waits:
            run.round()
        assert waits == ["tolist", "_to_copy"]
    assert calls
    assert other_rule_of(settings) is other_rule_of(settings), "graphs are kept by their rule"


@pytest.mark.parametrize(
    "decision", [[99, 0], [-1, 0], [0, VOCAB], [0, -1]], ids=lambda decision: str(decision)
)
def test_an_impossible_verdict_of_a_foreign_rule_is_refused(
    pair: Pair, form: str, decision: list[int], monkeypatch: pytest.MonkeyPatch
):
    wrong = foreign("wrong", lambda *_: torch.tensor(decision, device=DEVICE))
    monkeypatch.setitem(registry.known_verdicts, "wrong", wrong)
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=7, verdict="wrong")
    with pytest.raises(KindError, match="the verdict 'wrong' of them"):
        list(speculate(pair, PROMPT, settings))


def test_no_line_of_a_round_waits_outside_of_these_parts(pair: Pair):
    settings = Settings(gamma=3, temperature=1.0, top_p=0.8, max_new_tokens=12)
    for lane in (speculate, baseline):
        rounds = lane(pair, PROMPT, settings)
        next(rounds)  # after the prefill
        with host_waits() as waits:
            count = len(list(rounds))
        assert waits == ["tolist", "_to_copy"] * count and count > 1


def test_a_greedy_race_writes_what_generate_writes(pair: Pair, on_host: Pair, form: str):
    settings = Settings(gamma=3, max_new_tokens=12)
    wanted = generated(on_host.target, PROMPT, 12)
    header, *rounds, end = race(pair, PROMPT, settings)
    assert (header.device, header.target["form"], end.identical) == (DEVICE.type, form, True)
    for lane in ("speculative", "baseline"):
        assert emitted_ids(r for r in rounds if r.lane == lane) == wanted
    cards, theirs = (
        [t for r in speculate(either, PROMPT, settings) for t in (*r.drafted, *r.emitted)]
        for either in (pair, on_host)
    )
    for ours, other in zip(cards, theirs, strict=True):
        assert (ours.id, ours.outcome, ours.text) == (other.id, other.outcome, other.text)
        assert ours.soft_q == pytest.approx(other.soft_q, abs=1e-4)
        assert [c.id for c in ours.top_p] == [c.id for c in other.top_p]


@pytest.mark.parametrize("kind", ["mamba 2", "falcon-h1"])
def test_running_states_are_put_back_where_they_are(kind: str):
    """The wait for the verdict is the only one of a round, even if states are restored."""
    target = build(kind)
    models = target, relative(target, noise=0.2)
    wanted = generated(target, PROMPT, 10)
    rounds = speculate(
        pair_of(*map(on_device, models)), PROMPT, Settings(gamma=3, max_new_tokens=10)
    )
    first = next(rounds)
    with host_waits() as waits:
        rest = list(rounds)
    assert emitted_ids([first, *rest]) == wanted
    assert any(token.outcome == "rejected" for r in rest for token in r.drafted)
    assert waits == ["tolist", "_to_copy"] * len(rest)


@pytest.mark.parametrize("sampler", ["greedy", "both"])
def test_a_draft_on_another_device_than_its_target(pair: Pair, on_host: Pair, sampler: str):
    settings = Settings(gamma=3, max_new_tokens=12, **SAMPLERS[sampler])
    for target, draft in ((pair.target, on_host.draft), (on_host.target, pair.draft)):
        split = pair_of(target, draft)
        rounds = list(speculate(split, PROMPT, settings))
        assert len(emitted_ids(rounds)) == 12 and any(r.drafted for r in rounds)
        if settings.greedy:
            assert emitted_ids(rounds) == generated(on_host.target, PROMPT, 12)


def chain(drafter: str) -> tuple[Any, Pair]:
    """A target with a known distribution on the host, and a pair with the same target on the
    device."""
    if drafter == "early-exit":
        target = llama(4, num_hidden_layers=2, max_position_embeddings=4096)
        with torch.no_grad():
            for layer in target.model.layers:  # without attention, it is a Markov chain
                layer.self_attn.o_proj.weight.zero_()
        return target, pair_of(on_device(copy.deepcopy(target)))
    models = [mini(4, seed=s, spread=2.0, decay=0.0, max_position_embeddings=4096) for s in (2, 3)]
    return models[0], pair_of(*(on_device(copy.deepcopy(m)) for m in models))


def fits(drafter: str, sampler: str, tokens: int) -> float:
    """The p-value of Pearson's chi-square test of one long run of a Markov chain."""
    options: dict[str, Any] = {**SAMPLERS[sampler]}
    options["top_k"] = min(options.get("top_k", 0), 3)
    settings = Settings(gamma=3, drafter=drafter, max_new_tokens=tokens, **options)
    target, pair = chain(drafter)
    with bare_rounds():
        ids = [2, *emitted_ids(speculate(pair, [2], settings))]
    assert len(ids) == tokens + 1
    return chain_p_value(target, ids, settings)


@pytest.mark.parametrize(
    ("drafter", "sampler", "tokens"),
    [("model", "temperature", 200), ("early-exit", "both", 100)],
)
def test_long_runs_follow_the_law_of_the_target(drafter: str, sampler: str, tokens: int):
    assert fits(drafter, sampler, tokens) > 1e-4


def test_a_wrong_rule_fails_that_test(monkeypatch: pytest.MonkeyPatch):
    def likeliest(p: Any, q: Any, drafted: Any, u: Any, source: Any) -> Any:
        return torch.stack([(u < 2).sum(), p[-1].argmax()])

    monkeypatch.setattr("specviz.core.loop.other_rule_of", lambda _: likeliest)
    assert fits("model", "temperature", 300) < 1e-4


# The stand-in itself: it must notice everything that CUDA refuses or waits for.


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(3).mul_(x),
        lambda x: torch.cat([x, torch.ones(1)]),
        lambda x: torch.nn.functional.linear(x, torch.ones(2, 3)),
        lambda x: torch.ones(3).gather(0, x.long() * 0),
        lambda x: x[torch.tensor([0, 1])],
        lambda x: torch.rand(3, generator=torch.Generator(), device=DEVICE),
        lambda x: torch.rand(3, generator=torch.Generator(DEVICE)),
    ],
)
@pytest.mark.parametrize("inference", [True, False])
def test_mixing_devices_fails(mixed: Callable[[Any], Any], inference: bool):
    with torch.inference_mode(inference), pytest.raises(MixedDevices):
        mixed(torch.tensor([1.0, 2.0, 3.0], device=DEVICE))


@pytest.mark.parametrize("inference", [True, False])
def test_each_way_of_reading_a_value_is_counted(inference: bool):
    with torch.inference_mode(inference), host_waits() as none:
        x = torch.tensor([1.0, 2.0, 3.0], device=DEVICE)
        assert (x + 1 + torch.tensor(2.0)).device == x[1:].sum().device == DEVICE
        x.to(DEVICE).to(torch.float64)
        x.copy_(torch.ones(3))
        assert torch.zeros_like(x, device="cpu").device.type == "cpu"
        with pytest.raises(TypeError, match="copy it first"):
            x.numpy()
    assert none == []
    reads: list[Callable[[Any], Any]] = [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.to("cpu", torch.float64),
        lambda x: bool(x.sum() > 1),
        lambda x: int(x[0]),
        lambda x: torch.zeros(3).copy_(x),
        lambda x: x.numpy(force=True),
        lambda x: x[x > 1],
        lambda x: x.nonzero(),
        lambda x: torch.equal(x, x),
        lambda x: torch.allclose(x, x),
        lambda x: torch.multinomial(x, 1),
    ]
    for read in reads:
        with torch.inference_mode(inference), host_waits() as waits:
            read(x)
        assert len(waits) == 1, waits


def test_a_hidden_read_in_the_sampler_is_counted(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    def reading(logits: Any, settings: Settings) -> Any:
        assert logits.max().item() < 1e9
        return probabilities(logits, settings)

    monkeypatch.setattr("specviz.core.tensor_path.probabilities", reading)
    run = start_lane(pair, PROMPT, Settings(gamma=3, max_new_tokens=8), "speculative")
    run.prefill()
    with torch.inference_mode(), host_waits() as waits:
        run.path.judge(run.ids, run.drafter.draft(run.ids, 3))
    assert waits == ["_local_scalar_dense", "tolist"]


def test_a_mask_left_on_the_host_fails(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    ranges = torch.arange
    monkeypatch.setattr(torch, "arange", lambda *a, **k: ranges(*a, **{**k, "device": "cpu"}))
    with pytest.raises(MixedDevices):
        list(speculate(pair, PROMPT, Settings(max_new_tokens=8)))


def test_numbers_of_all_kinds_come_over_exactly():
    parts = {
        "ids": torch.tensor([[1, 2**40 + 1]]),
        "fp32": torch.tensor([0.1, float("-inf")]),
        "fp64": torch.tensor(1 / 3, dtype=torch.float64),
        "truth": torch.tensor(True),
        "none": torch.zeros(0, 5),
    }
    with host_waits() as waits:
        ours = copied({name: part.to(DEVICE) for name, part in parts.items()})
    assert ours == copied(parts) and waits == ["_to_copy"]
    assert ours["truth"] is True and type(ours["ids"][0][1]) is int


def test_a_device_without_memory_says_what_to_do(
    pair: Pair, form: str, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
):
    engine = make_engine(pair.target, VOCAB)
    feed = torch.arange(MAX_TOKENS + 1, device=DEVICE)  # read by the model's own modules
    assert engine.name == form

    def fails(error: Exception) -> Callable[..., None]:
        def forward(*_: Any, **__: Any) -> None:
            raise error

        return forward

    fulls = (
        torch.OutOfMemoryError("Tried to allocate 2.00 GiB."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        MemoryError(),
    )
    for full in fulls:
        monkeypatch.setattr(pair.target, "forward", fails(full))
        with sentences.raises(ModelError) as caught:
            engine.forward(feed, keep=1)
        assert caught.value.__cause__ is full
    monkeypatch.setattr(pair.target, "forward", fails(RuntimeError("a fault of the kernel")))
    with pytest.raises(RuntimeError, match="a fault of the kernel"):
        engine.forward(feed, keep=1)
    if form == "static":
        monkeypatch.setattr(LlamaPass, "logits", fails(fulls[0]))
        with sentences.raises(ModelError):
            engine.forward(feed[:2], keep=1)


def test_other_tests_of_this_process_see_no_accelerator():
    assert not torch.accelerator.is_available()
    assert torch.zeros(1).device == torch.ones(1).to("cpu").device == torch.device("cpu")
