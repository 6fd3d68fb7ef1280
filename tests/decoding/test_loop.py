"""The loop of a lane: the same tokens as without drafts, correct caches, and honest rounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from threading import Thread
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from sentences import Sentences
from toy_models import (
    MiniLM,
    emitted_ids,
    generated,
    llama,
    mini,
    next_logits,
    pair_of,
    relative,
    scripted,
)

import specviz.core.loop
import specviz.sides.model.drafter
from specviz import Pair, Round, Settings, baseline, speculate
from specviz.base.errors import ModelError, PairError
from specviz.core.eager import EagerEngine
from specviz.core.loop import start_lane
from specviz.core.numpy_path import NumpyPath
from specviz.core.paths import make_context

PROMPT = [3, 1, 4, 1, 5]
LENGTH = 140  # beyond the first growth of a packed model's cache
SHORT = 50  # for other forms; tests/engines tests the growth of their caches
LANES = (speculate, baseline)
SAMPLED = [
    Settings(temperature=1.0),
    Settings(temperature=0.7, top_k=7),
    Settings(temperature=1.5, top_p=0.8),
    Settings(temperature=1.0, top_k=9, top_p=0.9),
]


# Every form, greedy and sampled, and every sampler.
FORMS_AND_SETTINGS = [
    *(("fastest", settings) for settings in (Settings(), *SAMPLED)),
    ("static", Settings()),
    ("static", SAMPLED[1]),
    ("eager", Settings()),
    ("eager", SAMPLED[3]),
]


def in_words(value: Any) -> str:
    return value if isinstance(value, str) else f"{value.temperature}-{value.top_k}-{value.top_p}"


@pytest.fixture(params=["fastest", "static", "eager"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with the engine's choice for a Llama, with the form of a GPU, and with transformers' own
    forward."""
    if request.param == "static":
        monkeypatch.setenv("SPECVIZ_FORM", "static")
    if request.param == "eager":
        replace_engines(monkeypatch, EagerEngine)
    return str(request.param)


def replace_engines(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    def make_target(model: Any, vocab: int, **_: bool) -> Any:
        return make(model, vocab)

    monkeypatch.setattr(specviz.core.loop, "make_engine", make_target)
    monkeypatch.setattr(specviz.sides.model.drafter, "make_engine", make)


@pytest.fixture(scope="module")
def pair() -> Pair:
    """A target, and a draft that agrees with it about half of the time."""
    target = llama(40, num_hidden_layers=2, hidden_size=32, initializer_range=0.2)
    return pair_of(target, relative(target, noise=0.15))


@pytest.fixture(scope="module")
def alone(pair: Pair) -> list[int]:
    """The text that transformers' `generate` writes."""
    return generated(pair.target, PROMPT, LENGTH)


def greedy(gamma: int, length: int = LENGTH) -> Settings:
    return Settings(gamma=gamma, max_new_tokens=length)


def judged(rounds: list[Round]) -> tuple[int, int]:
    """The numbers of accepted and rejected drafts."""
    found = [t.outcome for r in rounds for t in r.drafted]
    return found.count("accepted"), found.count("rejected")


@pytest.mark.parametrize(
    ("form", "gamma"),
    [*(("fastest", gamma) for gamma in (1, 2, 3, 5, 8)), *product(("static", "eager"), (1, 8))],
    indirect=["form"],
)
def test_greedy_speculation_writes_what_generate_writes(
    pair: Pair, alone: list[int], gamma: int, form: str
):
    length = LENGTH if form == "fastest" else SHORT
    with bare_rounds():
        rounds = list(speculate(pair, PROMPT, greedy(gamma, length)))
    assert emitted_ids(rounds) == alone[:length]
    assert min(judged(rounds)) > 5, "the draft must sometimes be right and sometimes wrong"


def test_the_greedy_baseline_writes_what_generate_writes(pair: Pair, alone: list[int], form: str):
    length = LENGTH if form == "fastest" else SHORT
    with bare_rounds():
        rounds = list(baseline(pair, PROMPT, greedy(5, length)))
    assert emitted_ids(rounds) == alone[:length]
    assert all(len(r.emitted) == 1 and not r.drafted for r in rounds)


@pytest.mark.parametrize(("form", "settings"), FORMS_AND_SETTINGS, ids=in_words, indirect=["form"])
def test_a_target_that_drafts_for_itself_is_always_accepted(
    pair: Pair, settings: Settings, form: str
):
    twins = pair_of(pair.target, pair.target)
    rounds = list(speculate(twins, PROMPT, replace(settings, gamma=3, max_new_tokens=40)))
    assert judged(rounds) == (30, 0)
    assert all(t.outcome == "accepted" for r in rounds for t in r.drafted)


# A cache depends on the accepted tokens, not on the sampler that drew them.
@pytest.mark.parametrize(
    ("form", "settings"),
    [case for case in FORMS_AND_SETTINGS if case[1] in (Settings(), SAMPLED[1], SAMPLED[3])],
    ids=in_words,
    indirect=["form"],
)
def test_after_every_round_both_caches_agree_with_an_uncached_pass(
    pair: Pair, settings: Settings, form: str
):
    run = start_lane(pair, PROMPT, replace(settings, gamma=4, max_new_tokens=40), "speculative")
    run.prefill()
    while run.ended is None:
        run.round()
        for model, engine in ((pair.target, run.target_engine), (pair.draft, run.drafter.engine)):
            with torch.inference_mode():
                wanted = model(input_ids=torch.tensor([run.ids]), use_cache=False).logits[0, -1]
            torch.testing.assert_close(next_logits(engine, run.ids), wanted, atol=1e-4, rtol=1e-4)


class CountedEngine(EagerEngine):
    """An engine that records the number of tokens of each pass."""

    def __init__(self, model: Any, vocab: int) -> None:
        super().__init__(model, vocab)
        self.passes: list[int] = []

    def forward(self, ids: torch.Tensor, keep: int, **options: Any) -> torch.Tensor:
        self.passes.append(len(ids))
        return super().forward(ids, keep, **options)


@pytest.mark.parametrize("gamma", [0, 1, 5])
def test_a_round_is_one_target_pass(pair: Pair, gamma: int, monkeypatch: pytest.MonkeyPatch):
    replace_engines(monkeypatch, CountedEngine)
    run = start_lane(pair, PROMPT, greedy(gamma, 40), "speculative")
    run.prefill()
    assert run.target_engine.passes == [len(PROMPT) - 1]
    rounds = []
    while run.ended is None:
        rounds.append(run.round())
    assert run.target_engine.passes[1:] == [len(r.drafted) + 1 for r in rounds]
    if gamma:
        fed = run.drafter.engine.passes[1:]
        assert len(fed) == sum(len(r.drafted) for r in rounds), "a draft step is one pass"
        assert set(fed) <= {1, 2}, "only what is new: the last token, or the last two"


@pytest.mark.parametrize("settings", [Settings(), *SAMPLED], ids=lambda s: f"{s.temperature}")
def test_every_token_shows_the_verdict_that_it_got(pair: Pair, settings: Settings):
    for r in speculate(pair, PROMPT, replace(settings, max_new_tokens=40)):
        for token in r.drafted:
            assert token.q is not None and token.q > 0
            if token.outcome == "ignored":
                assert token.p is token.u is token.beta is None
            else:
                assert (token.u < token.p / token.q) == (token.outcome == "accepted")
                assert 0.0 <= token.beta <= 1.0 + 1e-6
        for token in r.emitted:
            assert token.p is not None and token.p > 0
        assert [t for t in r.drafted if t.outcome == "accepted"] == [
            t for t in r.emitted if t.outcome == "accepted"
        ]


def test_shown_distributions_are_those_of_the_models(pair: Pair):
    """The top five of p have the target's softmax, those of q the draft's."""
    first = next(speculate(pair, PROMPT, Settings(gamma=2, temperature=1.0)))
    for model, top in ((pair.target, first.drafted[0].top_p), (pair.draft, first.drafted[0].top_q)):
        logits = model(input_ids=torch.tensor([PROMPT])).logits[0, -1]
        best = torch.softmax(logits, -1).topk(5)
        assert [c.id for c in top] == best.indices.tolist()
        assert [c.probability for c in top] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_a_seeded_run_repeats_and_another_seed_differs(pair: Pair):
    settings = replace(SAMPLED[0], max_new_tokens=40)
    one, same, other = (
        emitted_ids(speculate(pair, PROMPT, replace(settings, seed=seed))) for seed in (7, 7, 8)
    )
    assert one == same != other


def test_an_abandoned_run_leaves_nothing_behind(pair: Pair):
    settings = replace(SAMPLED[0], max_new_tokens=30)
    whole = emitted_ids(speculate(pair, PROMPT, settings))
    for rounds in (1, 3):
        begun = speculate(pair, PROMPT, settings)
        for _ in range(rounds):
            next(begun)
        del begun
    # Two simultaneous runs do not disturb each other either.
    together = zip(
        speculate(pair, PROMPT, settings), speculate(pair, PROMPT, settings), strict=True
    )
    assert emitted_ids(ours for ours, _ in together) == whole


def test_visitors_at_once_each_get_their_own_run(pair: Pair):
    """Threads share the models, and one run moves to another thread."""
    settings = replace(SAMPLED[0], max_new_tokens=40)
    wanted = {start: emitted_ids(speculate(pair, [start], settings)) for start in range(4)}
    moved = speculate(pair, [0], settings)
    found = {0: [t.id for t in next(moved).emitted]}

    def visit(start: int) -> None:
        rounds = speculate(pair, [start], settings) if start else moved
        found[start] = found.get(start, []) + emitted_ids(rounds)

    threads = [Thread(target=visit, args=(start,)) for start in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted


@pytest.mark.parametrize("settings", [Settings(gamma=0), Settings(drafter="none")], ids=str)
def test_without_drafts_a_lane_is_the_baseline(pair: Pair, alone: list[int], settings: Settings):
    rounds = list(speculate(pair, PROMPT, replace(settings, max_new_tokens=20)))
    assert emitted_ids(rounds) == alone[:20]
    assert {t.outcome for r in rounds for t in r.emitted} == {"bonus"}


def test_a_pair_without_a_draft_runs_alone_or_says_so(pair: Pair):
    single = pair_of(pair.target)
    assert len(list(baseline(single, PROMPT, greedy(5, 3)))) == 3
    with pytest.raises(PairError, match="no draft model"):
        next(speculate(single, PROMPT, greedy(5, 3)))


@pytest.mark.parametrize("top", [{}, {"top_k": 1}, {"top_p": 1e-6}])
def test_ties_go_to_the_lowest_id_in_both_lanes(top: dict[str, float]):
    # These chains have no script: their logits come from a table, so equal logits are exactly
    # equal.
    target = scripted([], 6, seed=1)
    draft = scripted([], 6, seed=2)
    for model in (target, draft):
        with torch.no_grad():
            model.head.weight[3:] = model.head.weight[:3]
    settings = Settings(temperature=1.0 if top else 0.0, max_new_tokens=40, **top)
    ours, theirs = (emitted_ids(f(pair_of(target, draft), [5], settings)) for f in LANES)
    assert ours == theirs and max(ours) < 3


@pytest.mark.parametrize("draft", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16, torch.float64])
def test_models_of_other_precisions_run(target: torch.dtype, draft: torch.dtype):
    models = [llama(40, seed=0).to(target), llama(40, seed=1).to(draft)]
    for lane in LANES:
        rounds = list(lane(pair_of(*models), PROMPT, Settings(temperature=1.0, max_new_tokens=10)))
        assert len(emitted_ids(rounds)) == 10


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("broken", ["target", "draft"])
def test_logits_that_are_not_finite_end_in_a_sentence(
    value: float, broken: str, sentences: Sentences
):
    models = {"target": llama(40, seed=0), "draft": llama(40, seed=1)}
    with torch.no_grad():
        models[broken].model.layers[0].mlp.down_proj.weight[3] = value
    pair = pair_of(models["target"], models["draft"])
    for temperature in (0.0, 1.0):
        with sentences.raises(ModelError):
            list(speculate(pair, PROMPT, Settings(temperature=temperature, max_new_tokens=5)))


class Renamed(MiniLM):
    """A model that takes its cache under the name of newer versions of transformers."""

    def forward(self, input_ids: torch.Tensor, cache: Any = None, **options: Any) -> Any:
        return super().forward(input_ids, cache, **options)


def test_a_model_may_take_its_cache_under_either_name():
    target = mini(9)
    renamed = Renamed(target.config).eval()
    renamed.load_state_dict(target.state_dict())
    texts = []
    for model in (target, renamed):
        rounds = speculate(pair_of(model, mini(9, seed=1)), PROMPT, max_new_tokens=20)
        texts.append(emitted_ids(rounds))
    assert texts[0] == texts[1]


def test_a_buffer_of_the_models_own_is_never_written_to(pair: Pair):
    class Kept(torch.nn.Module):
        """Return the same buffer of logits from every pass, as some models do."""

        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.config = inner.config
            self.device = inner.device
            self.dtype = inner.dtype
            self.given: list[tuple[torch.Tensor, torch.Tensor]] = []

        def forward(self, **options: Any) -> Any:
            output = self.inner(**options)
            self.given.append((output.logits, output.logits.clone()))
            return output

    model = Kept(pair.target)
    engine = EagerEngine(model, pair.vocab)
    run = make_context(Settings(temperature=1.0), pair.vocab, torch.device("cpu"), None, "baseline")
    with torch.inference_mode():
        NumpyPath(engine, run).judge([1], None)
    assert model.given and all(torch.equal(now, then) for now, then in model.given)
