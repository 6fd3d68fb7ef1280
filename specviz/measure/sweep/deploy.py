"""What to deploy: speculate, do not, or measure more, in words; the page's address with it; and a
row's settings as other engines spell them, each with the version that it was read from.

One function writes each drafter's (`WRITERS`; `DrafterKind.deployed` is that of a package): what to
paste and a note, by engine; an empty text where the engine cannot do this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple, TypeAlias
from urllib.parse import urlencode

from ...core.ngrams import SIZES
from ...core.registry import drafter_kind
from ...environment import BUILTIN
from ...runs.uncertainty import NEAR, Estimate
from .types import (
    Answer,
    Configuration,
    EngineSettings,
    Machine,
    Measured,
    Place,
    Recommendation,
    Row,
    SweepRequest,
)

FEWEST_PROMPTS = 3  # and runs without disturbance: below that nothing is recommended
BUSY_SHARE = 0.25  # of the runs that were disturbed; from here on the doubt is told

Spelled: TypeAlias = dict[str, tuple[str, str]]
"""What to paste and a note, by engine."""


class Source(NamedTuple):
    """The version of an engine or of its documentation, and where it was read."""

    version: str
    address: str


SOURCES = {
    "transformers": Source(
        version="5.23.0",
        address="https://huggingface.co/docs/transformers/main/en/assisted_decoding",
    ),
    "vLLM": Source(
        version="documentation of November 2026, commit 04329df (release 0.33.0 is the newest)",
        address="https://docs.vllm.ai/en/latest/features/speculative_decoding/",
    ),
    "SGLang": Source(
        version="0.5.23",
        address="https://docs.sglang.io/docs/advanced_features/speculative_decoding",
    ),
    "llama.cpp": Source(
        version="tools/server/README.md of November 2026, commit 00dc805",
        address="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    ),
}
HAS_POLICIES = "transformers"


def recommendations(
    rows: Sequence[Row], machine: Machine | None, request: SweepRequest
) -> tuple[Recommendation, ...]:
    """One recommendation for each temperature, in the order of the request."""
    return tuple(
        _recommendation(
            [row for row in rows if row.configuration.temperature == temperature],
            machine,
            temperature,
        )
        for temperature in request.temperatures
    )


def _recommendation(
    rows: Sequence[Row], machine: Machine | None, temperature: float
) -> Recommendation:
    """rows: of this temperature."""
    if rows and all(row.status == "left out" for row in rows):
        return Recommendation(
            temperature=temperature,
            answer="do not speculate",
            headline="This pair cannot speculate with these drafters.",
            reasons=tuple(dict.fromkeys(row.note for row in rows)),
            doubt="",
            best=None,
            settings=(),
        )
    best = next((row for row in rows if row.mark == "best"), None)
    if best is None or best.measured is None or best.speedup is None:
        return Recommendation(
            temperature=temperature,
            answer="cannot tell",
            headline="Nothing was measured long enough to tell.",
            reasons=(),
            doubt="",
            best=None,
            settings=(),
        )
    # The row that promises most of those that were not measured on enough prompts to tell.
    rival = max((row for row in rows if row.mark == "open"), key=_promise, default=None)
    answer, headline = _answer(best, best.measured, best.speedup, rival)
    settings: tuple[EngineSettings, ...] = ()
    if answer == "speculate" and machine is not None:
        others = sorted(filter(_pays, rows), key=_speed, reverse=True)
        settings = engine_settings([best, *others], machine)
    return Recommendation(
        temperature=temperature,
        answer=answer,
        headline=headline,
        reasons=tuple(_reasons(best, best.measured, rows, answer)),
        doubt=" ".join(_doubts(best.measured, rows, rival)),
        best=best.configuration if answer == "speculate" else None,
        settings=settings,
    )


def _pays(row: Row) -> bool:
    """Whether a row that is not the best one is faster than the target alone beyond noise, and was
    measured enough."""
    speedup = row.speedup
    if row.mark in ("best", "open") or speedup is None or speedup.low is None:
        return False
    return _is_faster(speedup)


def _is_faster(speedup: Estimate) -> bool:
    return speedup.low is not None and speedup.low > 1.0 and speedup.value >= 1 + NEAR


def _promise(row: Row) -> float:
    return row.promise or _speed(row)


def _speed(row: Row) -> float:
    return row.speedup.value if row.speedup else 0.0


def _answer(best: Row, m: Measured, speedup: Estimate, rival: Row | None) -> tuple[Answer, str]:
    """The answer, and a sentence with it. m, speedup: of the best row."""
    name = best.configuration.label
    fast = f"{speedup.value:.2f} times as fast as the target alone"
    if m.doubts and m.runs - m.doubts < min(FEWEST_PROMPTS, m.runs):
        busy = f"the machine was busy in {m.doubts} of {m.runs} runs"
        return "cannot tell", f"No firm answer: {busy}, in which {name} was {fast}."
    if m.prompts < FEWEST_PROMPTS or speedup.low is None or speedup.high is None:
        few = f"{name} was {fast} on {_prompts(m.prompts)}, which is too few to tell"
        return "cannot tell", f"{few}: sweep at least three prompts, or longer."
    fast = f"{fast} ({speedup.low:.2f} to {speedup.high:.2f})"
    may_be_better = ""
    if rival is not None:
        why = "measured too little to tell" if rival.measured else "not measured"
        may_be_better = f" {rival.configuration.label} may be better, {why}."
    rival_may_pay = rival is not None and _promise(rival) >= 1 + NEAR
    if speedup.high < 1 + NEAR and not rival_may_pay:
        headline = f"Do not speculate here: the best row, {name}, is {fast}.{may_be_better}"
        return "do not speculate", headline
    if _is_faster(speedup):
        return "speculate", f"Use {name}: {fast}.{may_be_better}"
    headline = f"{name} is {fast}: measure more prompts before you decide.{may_be_better}"
    return "cannot tell", headline


def _reasons(best: Row, m: Measured, rows: Sequence[Row], answer: Answer) -> Iterator[str]:
    if m.tau and m.speedup:
        price = m.tau / m.speedup.value
        if price >= 1:  # it has a whole target pass
            yield f"A round yields {m.tau:.2f} tokens for the price of {price:.2f} target passes."
    if m.c is not None and m.alpha is not None:
        yield f"A guess costs {m.c:.2f} of a pass, and {m.alpha:.0%} of those judged are accepted."
        if answer == "do not speculate" and m.c >= m.alpha:
            yield "A guess costs more than it brings: find a smaller or a better draft."
    yield from _kinds_reason(m)
    tied = [row for row in rows if row.mark == "tied"]
    if tied:
        names = "; ".join(row.configuration.label for row in tied)
        yield f"On the prompts that both ran, noise cannot tell it from {names}."
    memory = best.memory or 0  # bytes; 0 if unknown
    smaller = [row for row in tied if row.memory is not None and row.memory < memory]
    if smaller and answer == "speculate":
        name = max(smaller, key=_speed).configuration.label
        yield f"Of these, {name} needs no second model: prefer it if memory is short."


def _kinds_reason(m: Measured) -> Iterator[str]:
    """On which kind of prompt it is fastest and slowest, if these differ."""
    if not m.by_kind:
        return
    speeds = sorted((speedup.value, kind) for kind, speedup in m.by_kind.items())
    slowest, slowest_kind = speeds[0]
    fastest, fastest_kind = speeds[-1]
    if fastest >= (1 + NEAR) * slowest:
        yield (
            f"It depends on the text: {fastest:.2f} on {fastest_kind}, "
            f"{slowest:.2f} on {slowest_kind}."
        )


def _doubts(m: Measured, rows: Sequence[Row], rival: Row | None) -> Iterator[str]:
    if m.doubts >= BUSY_SHARE * m.runs:
        yield f"The machine was busy in {m.doubts} of {m.runs} runs: sweep again when it is quiet."
    if rival is not None:
        prompts = rival.measured.prompts if rival.measured else 0
        promise = f"predicted at {rival.promise:.2f}" if rival.promise else "ahead so far"
        ran = f"it ran on {_prompts(prompts)} only" if prompts else "it was not measured"
        yield f"{rival.configuration.label} is {promise}, and {ran}: sweep longer."
    unmeasured = sum(row.status == "planned" for row in rows)
    if unmeasured:
        yield f"{unmeasured} rows were neither measured nor predicted: the sweep was too short."
    elif FEWEST_PROMPTS <= m.prompts < 2 * FEWEST_PROMPTS:
        yield f"It was measured on {_prompts(m.prompts)} only."


def _prompts(count: int) -> str:
    return "one prompt" if count == 1 else f"{count} prompts"


def page_query(row: Configuration, request: SweepRequest, machine: Machine | None) -> str:
    """The query of the page's address with the settings of the row, such as
    "?drafter=ngram&gamma=5&temperature=0"; `assets/page/run/address.js` reads it."""
    values: dict[str, object] = {}
    if machine is not None and machine.pair not in (BUILTIN, "custom"):
        values["pair"] = machine.pair
    values["drafter"] = row.drafter
    values["gamma"] = row.gamma
    values["gamma_policy"] = row.policy
    values["temperature"] = f"{row.temperature:g}"
    if request.base.top_k:
        values["top_k"] = request.base.top_k
    if request.base.top_p < 1.0:
        values["top_p"] = f"{request.base.top_p:g}"
    return f"?{urlencode(values)}"


def engine_settings(rows: Sequence[Row], machine: Machine) -> tuple[EngineSettings, ...]:
    """For transformers, vLLM, SGLang and llama.cpp, the first of these rows that the engine can
    run. rows: at least one, the best one first."""
    settings = []
    for engine, source in SOURCES.items():
        text, note = _first_spelled(rows, machine, engine)
        settings.append(
            EngineSettings(
                engine=engine,
                version=source.version,
                source=source.address,
                text=text,
                note=note,
            )
        )
    return tuple(settings)


def _first_spelled(rows: Sequence[Row], machine: Machine, engine: str) -> tuple[str, str]:
    """What to paste for the first row that an engine can run, and a note; if it can run none, the
    best row's note."""
    best = rows[0]
    for row in rows:
        text, note = _spelled(row.configuration, machine, engine)
        if text and row is not best:
            note = f"{_instead(engine, best, row)} {note}"
        if text:
            return text, note.strip()
    _, note = _spelled(best.configuration, machine, engine)
    return "", note.strip()


def _spelled(row: Configuration, machine: Machine, engine: str) -> tuple[str, str]:
    """What to paste for a row into an engine, empty if it has no such drafter; and a note."""
    write = WRITERS.get(row.drafter) or drafter_kind(row.drafter).deployed
    spelled = write(row, machine) if write else {}
    if engine in spelled:
        text, note = spelled[engine]
    elif "" in spelled:  # of every engine
        text, note = spelled[""]
    else:
        text = ""
        note = f"{engine} has none of the drafters that pay here, so there is nothing to paste."
    if text and row.policy != "fixed" and engine != HAS_POLICIES:
        note = f"It drafts {row.gamma} tokens in every round: it has no such policy. {note}"
    return text, note


def _instead(engine: str, best: Row, row: Row) -> str:
    """Why an engine gets another row than the best one."""
    return (
        f"{engine} cannot run the best row ({best.configuration.label}): these settings are those "
        f"of {row.configuration.label}, {_speed(row):.2f} times as fast as the target alone."
    )


def draft_model(row: Configuration, machine: Machine) -> Spelled:
    """A draft model."""
    gamma = row.gamma
    target = _target(machine)
    draft = _draft(machine)
    schedule = "constant" if row.policy == "fixed" else "heuristic"
    for_transformers = (
        f"assistant = AutoModelForCausalLM.from_pretrained({_loaded(draft)})\n"
        f"assistant.generation_config.num_assistant_tokens = {gamma}\n"
        f'assistant.generation_config.num_assistant_tokens_schedule = "{schedule}"\n'
        "assistant.generation_config.assistant_confidence_threshold = 0.0\n"
        f"{_generate(row, 'assistant_model=assistant')}"
    )
    policy_note = "Its own policy is the nearest to this one." if row.policy == "optimal" else ""
    vllm_config: dict[str, object] = {"method": "draft_model", "model": draft.name}
    for_llama_cpp = (
        f"llama-server -m {_gguf(target, 'target.gguf')} --spec-type draft-simple "
        f"--spec-draft-model {_gguf(draft, 'draft.gguf')} "
        f"--spec-draft-n-max {gamma} --spec-draft-p-min 0"
    )
    if row.temperature > 0.0:
        # By default vLLM's and llama.cpp's drafts are greedy also where the target samples.
        vllm_config["draft_sample_method"] = "probabilistic"
        for_llama_cpp += " --spec-draft-sampling probabilistic"
    sglang_algorithm = (
        f"STANDALONE --speculative-draft-model-path {quote(draft.name)} "
        f"--speculative-num-steps {gamma} --speculative-eagle-topk 1"
    )
    return {
        "transformers": (for_transformers, policy_note),
        "vLLM": (_for_vllm(row, machine, vllm_config), _tokenizer_note(machine)),
        "SGLang": (_for_sglang(row, machine, sglang_algorithm), ""),
        "llama.cpp": (for_llama_cpp, _files_note(target, draft)),
    }


def ngram(row: Configuration, machine: Machine) -> Spelled:
    """N-grams."""
    shortest = min(SIZES)
    longest = max(SIZES)
    target = _target(machine)
    lookup = f"prompt_lookup_num_tokens={row.gamma}, max_matching_ngram_size={longest}"
    vllm_config: dict[str, object] = {
        "method": "ngram",
        "prompt_lookup_min": shortest,
        "prompt_lookup_max": longest,
    }
    for_sglang = f"{_for_sglang(row, machine, 'NGRAM')} --speculative-ngram-max-bfs-breadth 1"
    for_llama_cpp = (
        f"llama-server -m {_gguf(target, 'target.gguf')} --spec-type ngram-simple "
        f"--spec-ngram-simple-size-n {shortest} --spec-ngram-simple-size-m {row.gamma}"
    )
    return {
        "transformers": (_generate(row, lookup), ""),
        "vLLM": (_for_vllm(row, machine, vllm_config), _tokenizer_note(machine)),
        "SGLang": (for_sglang, "It also remembers the texts of earlier requests."),
        "llama.cpp": (for_llama_cpp, _files_note(target)),
    }


def suffix(row: Configuration, machine: Machine) -> Spelled:
    """Counts of what followed."""
    note = f"It also looks into earlier answers of the server. {_tokenizer_note(machine)}"
    return {"vLLM": (_for_vllm(row, machine, {"method": "suffix"}), note.strip())}


def early_exit(row: Configuration, machine: Machine) -> Spelled:
    """The target's own first layers."""
    text = _generate(row, f"assistant_early_exit={machine.exit_layers}")
    return {"transformers": (text, "It is meant for models that were trained for early exit.")}


def head(row: Configuration, machine: Machine) -> Spelled:
    """A head: which form an engine reads depends on the head."""
    return {"": ("", "Settings for a head are not written here.")}


WRITERS: dict[str, Callable[[Configuration, Machine], Spelled]] = {
    "model": draft_model,
    "ngram": ngram,
    "suffix": suffix,
    "early-exit": early_exit,
    "head": head,
    "ngram-head": head,
}
"""By name of the drafter: what writes its settings for other engines."""


def _target(machine: Machine) -> Place:
    return machine.target_place or Place(machine.target)


def _draft(machine: Machine) -> Place:
    return machine.draft_place or Place(str(machine.draft))


def _loaded(model: Place) -> str:
    """The arguments with which transformers loads a model."""
    if model.gguf is None or not model.is_file:
        return repr(model.name)
    path = Path(model.gguf)
    return f"{str(path.parent)!r}, gguf_file={path.name!r}"


def _gguf(model: Place, placeholder: str) -> str:
    """The GGUF file of a model for a shell."""
    return quote(model.gguf or placeholder)


def _files_note(*models: Place) -> str:
    """Which GGUF files are still to be had, and where others are."""
    notes: list[str] = []
    missing = [model.name for model in models if model.gguf is None]
    if missing:
        files = "GGUF files" if len(missing) > 1 else "a GGUF file"
        notes.append(f"It needs {files} of {' and '.join(missing)}.")
    for model in models:
        if model.package:
            notes.append(f"{model.gguf} lies in the package {model.package}.")
        if model.repository:
            notes.append(f"{model.gguf} lies in {model.repository} on the hub.")
    return " ".join(notes)


def _tokenizer_note(machine: Machine) -> str:
    """What vLLM also needs for a file that somebody named; empty for other models."""
    if _target(machine).is_file:
        return "With a GGUF file it wants --tokenizer and the original model's id."
    return ""


def _generate(row: Configuration, drafts: str) -> str:
    if row.temperature == 0.0:
        sampling = "do_sample=False"
    else:
        sampling = f"do_sample=True, temperature={row.temperature:g}"
    return f"model.generate(**inputs, {drafts}, {sampling})"


def _for_vllm(row: Configuration, machine: Machine, config: dict[str, object]) -> str:
    whole_config = {"num_speculative_tokens": row.gamma} | config
    target = quote(_target(machine).name)
    return f"vllm serve {target} --speculative-config {quote(json.dumps(whole_config))}"


def _for_sglang(row: Configuration, machine: Machine, algorithm: str) -> str:
    # The tokens of a pass: the drafts, and the committed one before them.
    return (
        f"python -m sglang.launch_server --model-path {quote(_target(machine).name)} "
        f"--speculative-algorithm {algorithm} "
        f"--speculative-num-draft-tokens {row.gamma + 1}"
    )
