"""Drafters and verdicts of other packages: registered, run, recorded, proved, refused with a
sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from bare_rounds import bare_rounds
from places import ROOT
from sentences import Sentences
from toy_models import llama, pair_of, scripted

import specviz
from specviz import Draft, Drafter, DrafterKind, Trace, VerdictKind
from specviz.__main__ import main
from specviz.base.errors import KindError, SettingsError
from specviz.core import plugins, registry
from specviz.core.tensor_verdict import decide_on_tensors
from specviz.inspect.prove import prove

GUIDE = (ROOT / "docs" / "extending.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", GUIDE, re.DOTALL))
(PROJECT,) = re.findall(r"```toml\n# pyproject\.toml\n(.*?)```", GUIDE, re.DOTALL)
METADATA = "import sys; from setuptools import build_meta as build; "
METADATA += "build.prepare_metadata_for_build_wheel(sys.argv[1])"
PROMPT = [1, 2, 3, 1, 2]
RUNS = 200  # of a proof; the wrong example of the guide gives a p-value of 8e-10, typical 3e-19


@pytest.fixture(autouse=True)
def own_tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "known_drafters", dict(registry.known_drafters))
    monkeypatch.setattr(registry, "known_verdicts", dict(registry.known_verdicts))
    yield


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples of the guide as modules that can be imported."""
    for name, code in EXAMPLES.items():
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in EXAMPLES:
        sys.modules.pop(name, None)


@pytest.fixture
def package(guide: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's package as if pip had installed it."""
    (tmp_path / "pyproject.toml").write_text(PROJECT, "utf-8")
    # Setuptools would refuse a second module in the folder, and patches the process that runs it.
    for name in EXAMPLES.keys() - {"cautious"}:
        (tmp_path / f"{name}.py").unlink()
    subprocess.run([sys.executable, "-c", METADATA, tmp_path], cwd=tmp_path, check=True, timeout=60)
    monkeypatch.setattr(plugins, "_loaded", [])


def test_the_examples_are_short():
    assert len(EXAMPLES) == 3
    assert all(len(code.splitlines()) < 45 for code in EXAMPLES.values())


def test_the_example_drafts_is_recorded_and_keeps_the_distribution(guide: None, tmp_path: Path):
    __import__("lasttoken")
    pair = pair_of(llama(5, seed=1))
    trace = Trace.from_events(
        specviz.race(pair, PROMPT, drafter="last-token", temperature=1.0, max_new_tokens=20)
    )
    assert any(r.drafted for r in trace.rounds)
    assert trace.header.versions["lasttoken"] == "unknown"
    trace.save(tmp_path / "run.json")
    assert Trace.load(tmp_path / "run.json").rounds == trace.rounds
    with bare_rounds():
        assert prove("last-token", RUNS).kept


def test_the_wrong_example_is_caught(guide: None, capsys: pytest.CaptureFixture[str]):
    __import__("sharper")
    with bare_rounds():
        assert main(["prove", "sharper", "--runs", str(RUNS)]) == 1
    assert "not kept" in capsys.readouterr().out


def test_the_verdict_of_the_guide_s_package_keeps_the_distribution(
    package: None, capsys: pytest.CaptureFixture[str]
):
    with bare_rounds():
        assert main(["prove", "cautious", "--runs", str(RUNS)]) == 0
    assert "kept: the texts are consistent" in capsys.readouterr().out
    assert registry.verdict_kind("cautious").package == "cautious 1.0"
    pair = pair_of(llama(5), llama(5, seed=1))
    settings = {"verdict": "cautious", "temperature": 1.0, "max_new_tokens": 20}
    trace = Trace.from_events(specviz.race(pair, PROMPT, **settings))
    assert trace.header.versions["cautious"] == "1.0"
    rejected = [token for r in trace.rounds for token in r.drafted if token.outcome == "rejected"]
    assert rejected
    for token in rejected:
        p, q, correction = (
            {choice.id: choice.probability for choice in choices}
            for choices in (token.top_p, token.top_q, token.top_residual)
        )
        kept = {word: min(q[word], p[word] / 2) for word in p}
        mass = 1 - sum(kept.values())
        expected = {word: (p[word] - kept[word]) / mass for word in p}
        assert correction == pytest.approx(expected, abs=1e-4)


def test_the_wrong_correction_that_the_guide_names_is_caught(
    package: None, monkeypatch: pytest.MonkeyPatch
):
    (wrong,) = re.findall(r"If `remaining_mass` returns `(.*?)`", GUIDE)
    module = import_module("cautious")
    monkeypatch.setattr(module, "remaining_mass", eval(f"lambda p, q: {wrong}"))
    with bare_rounds():
        assert not prove("cautious", 2 * RUNS).kept


def test_a_head_is_kept_and_typical_is_not(sentences: Sentences):
    with bare_rounds():
        found = prove("head", RUNS)
        typical = prove("typical", RUNS)
    assert found.kept and found.drafted > RUNS
    assert not typical.kept
    with sentences.raises(SettingsError):
        prove("nothing")


def drafting(draft: Any) -> type[Drafter]:
    class Own(Drafter):
        def __init__(self, *_: Any) -> None:
            pass

        def draft(self, ids: Any, count: int) -> Any:
            return draft(count)

    return Own


def uniform(n: int, vocab: int = 5) -> torch.Tensor:
    return torch.full((n, vocab), 1 / vocab)


def raising(_: int) -> Any:
    raise ZeroDivisionError("no luck")


FAULTS: dict[str, Any] = {
    "raises": raising,
    "no draft": lambda n: [1, 2],
    "shape": lambda n: Draft(torch.tensor([1]), uniform(1, 4)),
    "dtype": lambda n: Draft(torch.tensor([1]), uniform(1).double()),
    "float ids": lambda n: Draft(torch.tensor([1.0]), uniform(1)),
    "many": lambda n: Draft(torch.ones(n + 1, dtype=torch.long), uniform(n + 1)),
    "outside": lambda n: Draft(torch.tensor([5]), uniform(1)),
    "sum": lambda n: Draft(torch.tensor([1]), uniform(1) * 0.9),
    "negative": lambda n: Draft(torch.tensor([1]), torch.tensor([[-0.5, 1.5, 0.0, 0.0, 0.0]])),
    "nan": lambda n: Draft(torch.tensor([1]), uniform(1) * float("nan")),
    "impossible": lambda n: Draft(torch.tensor([0]), torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0]])),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_drafter_is_named_in_a_sentence(fault: str, sentences: Sentences):
    specviz.register(DrafterKind(name="mine", make=drafting(FAULTS[fault]), label="mine"))
    pair = pair_of(llama(5))
    with sentences.raises(KindError):
        list(specviz.speculate(pair, PROMPT, drafter="mine", temperature=1.0, max_new_tokens=6))
    assert len(specviz.generate(pair, PROMPT, drafter="ngram", max_new_tokens=6).rounds)


def test_a_verdict_of_others_judges_and_is_checked(sentences: Sentences):
    specviz.register(
        VerdictKind(name="usual", decide=decide_on_tensors, label="usual", package="them 1.0")
    )
    pair = pair_of(llama(5), llama(5, seed=1))
    same = [
        specviz.generate(pair, PROMPT, verdict=name, temperature=1.0, max_new_tokens=12).text
        for name in ("token", "usual")
    ]
    assert same[0] == same[1]
    wrong = VerdictKind(
        name="wrong", decide=lambda p, *_: torch.tensor([99, 0]), label="x", package="them 1.0"
    )
    specviz.register(wrong)
    with sentences.raises(KindError):
        specviz.generate(pair, PROMPT, verdict="wrong", temperature=1.0, max_new_tokens=6)


@dataclass
class Configured:
    """A rule with a setting. Instances of such a class have no hash."""

    scale: float = 1.0

    def __call__(self, p: Any, q: Any, drafted: Any, u: Any, source: Any) -> torch.Tensor:
        return decide_on_tensors(p, q, drafted, self.scale * u, source)


def test_a_rule_may_be_an_object_without_a_hash():
    specviz.register(VerdictKind(name="set", decide=Configured(), label="set", package="them 1.0"))
    pair = pair_of(llama(5), llama(5, seed=1))
    sampled = {"temperature": 1.0, "max_new_tokens": 12}
    configured = specviz.generate(pair, PROMPT, verdict="set", **sampled)
    assert configured.text == specviz.generate(pair, PROMPT, **sampled).text


def test_names_are_refused_that_are_taken_or_no_names(sentences: Sentences):
    for name in ("model", "Mine", "", "a b"):
        with sentences.raises(SettingsError):
            specviz.register(DrafterKind(name=name, make=drafting(raising), label="mine"))
    with sentences.raises(SettingsError):
        specviz.register("mine")  # type: ignore[arg-type]
    named = DrafterKind(name="mine", make="module:Mine", label="mine")  # type: ignore[arg-type]
    with sentences.raises(SettingsError):
        specviz.register(named)


def test_a_result_tells_text_rounds_and_metrics():
    pair = pair_of(llama(5), llama(5, seed=1))
    result = specviz.generate(pair, PROMPT, gamma=3, max_new_tokens=10)
    rounds = list(specviz.speculate(pair, PROMPT, gamma=3, max_new_tokens=10))
    assert result.text == "".join(r.text for r in rounds) and result.text
    assert result.metrics.emitted == 10 and result.metrics.speedup is None
    with pytest.raises(SettingsError, match="no setting 'gama'"):
        specviz.generate(pair, PROMPT, gama=3)


def test_the_token_that_ended_a_text_is_no_part_of_it():
    target = scripted([0, 1, 2, 3], 5)
    target.generation_config.eos_token_id = 3
    pair = pair_of(target, scripted([0, 1, 2, 3], 5))
    ended = specviz.generate(pair, [0], temperature=0.0, max_new_tokens=10)
    tokens = [token for r in ended.rounds for token in r.emitted]
    assert [token.id for token in tokens] == [1, 2, 3]
    assert ended.text == "".join(token.text for token in tokens[:2])
    cut = specviz.generate(pair, [0], temperature=0.0, max_new_tokens=2)
    assert cut.text == ended.text
    longer = specviz.generate(pair, [0], temperature=0.0, max_new_tokens=3, ignore_eos=True)
    assert longer.text == "".join(token.text for token in tokens)


def test_a_race_is_stopped_by_close_and_the_pair_goes_on():
    pair = pair_of(llama(5), llama(5, seed=1))
    events = specviz.race(pair, PROMPT, max_new_tokens=50)
    for _ in range(3):
        next(iter(events))
    events.close()  # type: ignore[attr-defined]
    assert specviz.generate(pair, PROMPT, max_new_tokens=4).metrics.emitted == 4
