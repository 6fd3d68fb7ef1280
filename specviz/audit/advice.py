"""Advice, with commands for the audited engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..remote.identity import LLAMA_CPP, LM_STUDIO, OLLAMA, SGLANG, VLLM
from ..remote.other_engines import EngineTexts
from ..runs.uncertainty import NEAR
from ..sides.lookup.deployed import deployed_ngrams
from ..sides.model.deployed import deployed_model
from .paying import crossover
from .report import Advice, Drafting, Greedy, Load, Sampled, Speed, Verdict

USUAL_GAMMA = 5
MIN_IMPROVEMENT = 1.05  # times the present speed, to recommend another number of drafts
MIN_ALL_KEPT = 0.6  # share of steps that keep all drafts, to recommend more drafts
MAX_AT_ONCE = 1024  # requests; no deployment of one server has more


class NamedModel(NamedTuple):
    """A model as its operator names it: `other_engines.ModelFiles`."""

    name: str
    gguf: str | None = None
    package: str = ""
    repository: str = ""
    is_file: bool = False


class Setting(NamedTuple):
    """The drafts that a command asks for: `other_engines.Deployed`."""

    gamma: int
    policy: str
    temperature: float


class Deployment(NamedTuple):
    """The models of a command: `other_engines.Machine`."""

    target_files: NamedModel
    draft_files: NamedModel
    exit_layers: int | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings behind advice. draft: the draft's name for commands; None if none was named."""

    engine: str
    model: str
    draft: str | None
    verdicts: Sequence[Verdict]
    drafting: Drafting | None
    speeds: Sequence[Speed]
    loads: Sequence[Load]
    greedy: Sequence[Greedy]
    sampled: Sequence[Sampled]
    temperature: float

    def answer(self, question: str) -> str | None:
        """The answer to a question; None if it was not asked."""
        for verdict in self.verdicts:
            if verdict.question == question:
                return verdict.answer
        return None


def advice(findings: Findings) -> Iterator[Advice]:
    """List the advice, the most important first."""
    yield from _on_silence(findings)
    yield from _on_faults(findings)
    yield from _on_speed(findings)
    yield from _on_load(findings)
    yield from _on_what_is_not_told(findings)


def _on_silence(findings: Findings) -> Iterator[Advice]:
    """Advice if nothing is drafted."""
    if findings.answer("speculating") != "no":
        return
    loaded = findings.drafting is not None and findings.drafting.is_loaded
    if loaded and findings.engine == LLAMA_CPP:
        yield Advice(
            "The draft takes memory and is not used. Name the kind of speculation, and set limits "
            "that allow short and unsure drafts.",
            LLAMA_CPP,
            "--spec-type draft-simple --spec-draft-n-max 5 --spec-draft-n-min 0 "
            "--spec-draft-p-min 0",
        )
        return
    yield Advice("Start the server with speculation.", *_command(findings, USUAL_GAMMA))


def _on_faults(findings: Findings) -> Iterator[Advice]:
    """Advice if the text is not the target's."""
    if findings.answer("lossless") != "no":
        return
    texts = {
        SGLANG: "--speculative-accept-threshold-single 1.0 --speculative-accept-threshold-acc 1.0",
        VLLM: '--speculative-config \'{..., "rejection_sample_method": "standard"}\'',
    }
    has_greedy_faults = any(check.faults for check in findings.greedy)
    text_kind = "greedy" if has_greedy_faults else "sampled"
    sentence = (
        f"Its {text_kind} text is not the target's: switch speculation off until a version fixes "
        "it, and report the figures to the engine's authors."
    )
    if findings.engine not in texts:
        yield Advice(sentence)
        return
    yield Advice(
        f"{sentence} One cause is a rule that accepts too many drafts: set the exact one.",
        findings.engine,
        texts[findings.engine],
    )


def _on_speed(findings: Findings) -> Iterator[Advice]:
    """Advice if another number of drafts, another draft or none would be faster."""
    if findings.answer("speculating") != "yes" or not findings.speeds:
        return
    gain = findings.speeds[0].gain
    if gain is None:
        return
    by_position: tuple[float, ...] = ()
    if findings.drafting is not None:
        by_position = findings.drafting.by_position
    best = better_gamma(by_position, gain.value)
    if best is not None:
        yield Advice(
            f"Draft {best.gamma} tokens instead of {best.present}: about {best.speedup:.2f} times "
            f"the baseline instead of {gain.value:.2f}, if a step's cost grows linearly with its "
            "drafts.",
            *_command(findings, best.gamma),
        )
    elif gain.value < 1.0 + NEAR:
        yield Advice(
            "No smaller number of drafts would make this draft pay here. Use a draft that is "
            "smaller or agrees more often, try n-grams, which cost nothing to draft, or serve the "
            "target alone.",
            *_ngrams(findings),
        )
    elif by_position and by_position[-1] > MIN_ALL_KEPT:
        gamma = len(by_position)
        yield Advice(
            f"{by_position[-1]:.0%} of steps keep all {gamma} drafts: try more drafts.",
            *_command(findings, 2 * gamma),
        )


class BetterGamma(NamedTuple):
    """A number of drafts that promises more than the present one. speedup: the promised one."""

    gamma: int
    present: int
    speedup: float


def better_gamma(by_position: Sequence[float], gain: float) -> BetterGamma | None:
    """The number of drafts that would be fastest, if it is clearly faster than the present one.

    by_position: the share of steps that kept their first k drafts. A step with g drafts emits 1 +
    the sum of the first g shares, and is taken to cost 1 + c g plain steps; c follows from the gain
    that was measured at the present number. Only fewer drafts can be judged this way.
    """
    present = len(by_position)
    if not present:
        return None
    tokens = [1.0]
    for share in by_position:
        tokens.append(tokens[-1] + share)
    cost_of_step = tokens[present] / gain
    cost = max(0.0, (cost_of_step - 1.0) / present)
    speedups = [count / (1.0 + cost * gamma) for gamma, count in enumerate(tokens)]
    best = max(range(1, present + 1), key=lambda gamma: speedups[gamma])
    is_worth_it = speedups[best] >= max(MIN_IMPROVEMENT * gain, 1.0 + NEAR)
    if best == present or not is_worth_it:
        return None
    return BetterGamma(gamma=best, present=present, speedup=speedups[best])


def _on_load(findings: Findings) -> Iterator[Advice]:
    """Advice if speculation stops paying with many requests at once."""
    until = crossover(findings.loads)
    if until is None or findings.answer("speculating") != "yes":
        return
    gamma = _present_gamma(findings)
    reason = f"With {until} or more requests at once, drafts do not pay."
    if findings.engine == VLLM:
        ranges = [[1, until - 1, gamma], [until, MAX_AT_ONCE, 0]]
        setting = json.dumps({"num_speculative_tokens_per_batch_size": ranges})
        inner_json = setting.removeprefix("{")
        yield Advice(
            f"{reason} Make the number of drafts depend on the batch size.",
            VLLM,
            f"--speculative-config '{{..., {inner_json}'",
        )
    elif findings.engine == SGLANG:
        yield Advice(
            f"{reason} Let the server adapt the number of drafts.", SGLANG, "--speculative-adaptive"
        )
    elif findings.engine == LLAMA_CPP:
        yield Advice(
            f"{reason} The server cannot adapt: limit the number of concurrent requests.",
            LLAMA_CPP,
            f"--parallel {until - 1}",
        )
    else:
        yield Advice(f"{reason} Limit the number of concurrent requests.")


def _on_what_is_not_told(findings: Findings) -> Iterator[Advice]:
    """Advice if a switch of the server would let the audit see more."""
    if findings.answer("speculating") != "cannot be told":
        return
    lines = {
        VLLM: "--per-request-spec-decode-metrics detailed",
        LLAMA_CPP: "--metrics --slots",
        SGLANG: "--enable-metrics",
    }
    if findings.engine in lines:
        yield Advice(
            "Let the server report what its steps draft and accept.",
            findings.engine,
            lines[findings.engine],
        )


def _present_gamma(findings: Findings) -> int:
    drafting = findings.drafting
    if drafting is None or not drafting.by_position:
        return USUAL_GAMMA
    return len(drafting.by_position)


def _deployment(findings: Findings) -> Deployment:
    draft = findings.draft or "DRAFT"
    gguf = draft if draft.endswith(".gguf") else None
    return Deployment(
        target_files=NamedModel(findings.model),
        draft_files=NamedModel(draft, gguf),
    )


def _command(findings: Findings, gamma: int) -> tuple[str, str]:
    """The engine and its command lines to draft `gamma` tokens with the draft model; empty for an
    unknown engine."""
    draft = findings.draft or "DRAFT"
    if findings.engine == OLLAMA:
        lines = f"FROM {findings.model}\nDRAFT {draft}\nPARAMETER draft_num_predict {gamma}"
        return f"{OLLAMA} (Modelfile)", lines
    if findings.engine == LM_STUDIO:
        return f"{LM_STUDIO} (in each request)", json.dumps({"draft_model": draft})
    setting = Setting(gamma, "fixed", findings.temperature)
    return _lines(findings.engine, deployed_model(setting, _deployment(findings)))


def _ngrams(findings: Findings) -> tuple[str, str]:
    setting = Setting(_present_gamma(findings), "fixed", findings.temperature)
    return _lines(findings.engine, deployed_ngrams(setting, _deployment(findings)))


def _lines(engine: str, texts: EngineTexts) -> tuple[str, str]:
    if engine not in texts:
        return "", ""
    return engine, texts[engine][0]
