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
from typing import TypeAlias
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

SOURCES = {
    "transformers": (
        "5.23.0",
        "https://huggingface.co/docs/transformers/main/en/assisted_decoding",
    ),
    "vLLM": (
        "documentation of November 2026, commit 04329df (release 0.33.0 is the newest)",
        "https://docs.vllm.ai/en/latest/features/speculative_decoding/",
    ),
    "SGLang": ("0.5.23", "https://docs.sglang.io/docs/advanced_features/speculative_decoding"),
    "llama.cpp": (
        "tools/server/README.md of November 2026, commit 00dc805",
        "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    ),
}
"""By engine: the version of the software or of its documentation, and where it was read."""
HAS_POLICIES = "transformers"


def recommendations(
    rows: Sequence[Row], machine: Machine | None, request: SweepRequest
) -> tuple[Recommendation, ...]:
    """One recommendation for each temperature, in the order of the request."""
    return tuple(_recommendation(rows, machine, one) for one in request.temperatures)


def _recommendation(
    rows: Sequence[Row], machine: Machine | None, temperature: float
) -> Recommendation:
    rows = [row for row in rows if row.configuration.temperature == temperature]
    best = next((row for row in rows if row.mark == "best"), None)
    answer: Answer = "cannot tell"
    headline, doubt = "Nothing was measured long enough to tell.", ""
    reasons: tuple[str, ...] = ()
    if rows and all(row.status == "left out" for row in rows):
        answer, headline = "do not speculate", "This pair cannot speculate with these drafters."
        reasons = tuple(dict.fromkeys(row.note for row in rows))
    elif best is not None and best.measured is not None and best.speedup is not None:
        # The row that promises most of those that were not measured on enough prompts to tell.
        rival = max((row for row in rows if row.mark == "open"), key=_promise, default=None)
        answer, headline = _answer(best, best.measured, best.speedup, rival)
        reasons = tuple(_reasons(best, best.measured, rows, answer))
        doubt = " ".join(_doubts(best.measured, rows, rival))
    if best is None or answer != "speculate":
        return Recommendation(temperature, answer, headline, reasons, doubt, None, ())
    paying = [best, *sorted(filter(_pays, rows), key=_speed, reverse=True)]
    settings = engine_settings(paying, machine) if machine is not None else ()
    return Recommendation(
        temperature, answer, headline, reasons, doubt, best.configuration, settings
    )


def _pays(row: Row) -> bool:
    """Whether a row is faster than the target alone beyond noise, and was measured enough."""
    found = row.speedup
    if row.mark in ("best", "open") or found is None or found.low is None:
        return False
    return found.low > 1.0 and found.value >= 1 + NEAR


def _promise(row: Row) -> float:
    return row.promise or _speed(row)


def _speed(row: Row) -> float:
    return row.speedup.value if row.speedup else 0.0


def _answer(best: Row, m: Measured, found: Estimate, rival: Row | None) -> tuple[Answer, str]:
    said = f"{found.value:.2f} times as fast as the target alone"
    name = best.configuration.label
    if m.doubts and m.runs - m.doubts < min(FEWEST_PROMPTS, m.runs):
        busy = f"the machine was busy in {m.doubts} of {m.runs} runs"
        return "cannot tell", f"No firm answer: {busy}, in which {name} was {said}."
    if m.prompts < FEWEST_PROMPTS or found.low is None or found.high is None:
        few = f"{name} was {said} on {_prompts(m.prompts)}, which is too few to tell"
        return "cannot tell", f"{few}: sweep at least three prompts, or longer."
    said, unknown = f"{said} ({found.low:.2f} to {found.high:.2f})", ""
    if rival is not None:
        how = "measured too little to tell" if rival.measured else "not measured"
        unknown = f" {rival.configuration.label} may be better, {how}."
    if found.high < 1 + NEAR and not (rival and _promise(rival) >= 1 + NEAR):
        no = f"Do not speculate here: the best row, {name}, is {said}.{unknown}"
        return "do not speculate", no
    if found.low > 1.0 and found.value >= 1 + NEAR:
        return "speculate", f"Use {name}: {said}.{unknown}"
    return "cannot tell", f"{name} is {said}: measure more prompts before you decide.{unknown}"


def _reasons(best: Row, m: Measured, rows: Sequence[Row], answer: Answer) -> Iterator[str]:
    price = m.tau / m.speedup.value if m.tau and m.speedup else 0.0
    if price >= 1:  # it has a whole target pass
        yield f"A round yields {m.tau:.2f} tokens for the price of {price:.2f} target passes."
    if m.c is not None and m.alpha is not None:
        yield f"A guess costs {m.c:.2f} of a pass, and {m.alpha:.0%} of those judged are accepted."
        if answer == "do not speculate" and m.c >= m.alpha:
            yield "A guess costs more than it brings: find a smaller or a better draft."
    ordered = sorted((one.value, kind) for kind, one in m.by_kind.items())
    if ordered and ordered[-1][0] >= (1 + NEAR) * ordered[0][0]:
        (low, worst), (high, finest) = ordered[0], ordered[-1]
        yield f"It depends on the text: {high:.2f} on {finest}, {low:.2f} on {worst}."
    tied = [row for row in rows if row.mark == "tied"]
    if tied:
        alike = "; ".join(row.configuration.label for row in tied)
        yield f"On the prompts that both ran, noise cannot tell it from {alike}."
    least = best.memory or 0  # bytes; 0 if unknown
    cheaper = [row for row in tied if row.memory is not None and row.memory < least]
    if cheaper and answer == "speculate":
        name = max(cheaper, key=_speed).configuration.label
        yield f"Of these, {name} needs no second model: prefer it if memory is short."


def _doubts(m: Measured, rows: Sequence[Row], rival: Row | None) -> Iterator[str]:
    if m.doubts >= BUSY_SHARE * m.runs:
        yield f"The machine was busy in {m.doubts} of {m.runs} runs: sweep again when it is quiet."
    if rival is not None:
        seen = rival.measured.prompts if rival.measured else 0
        what = f"predicted at {rival.promise:.2f}" if rival.promise else "ahead so far"
        ran = f"it ran on {_prompts(seen)} only" if seen else "it was not measured"
        yield f"{rival.configuration.label} is {what}, and {ran}: sweep longer."
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
    values = {
        "pair": "" if machine is None or machine.pair in (BUILTIN, "custom") else machine.pair,
        "drafter": row.drafter,
        "gamma": row.gamma,
        "gamma_policy": row.policy,
        "temperature": f"{row.temperature:g}",
        "top_k": request.base.top_k or "",
        "top_p": f"{request.base.top_p:g}" if request.base.top_p < 1.0 else "",
    }
    return "?" + urlencode({name: value for name, value in values.items() if value != ""})


def engine_settings(rows: Sequence[Row], machine: Machine) -> tuple[EngineSettings, ...]:
    """For transformers, vLLM, SGLang and llama.cpp, the first of these rows that the engine can
    run. rows: at least one, the best one first."""
    best, *others = rows
    settings = []
    for engine, (version, address) in SOURCES.items():
        text, note = _spelled(best.configuration, machine, engine)
        for row in others:
            if text:
                break
            text, more = _spelled(row.configuration, machine, engine)
            if text:
                note = f"{_instead(engine, best, row)} {more}"
        settings.append(EngineSettings(engine, version, address, text, note.strip()))
    return tuple(settings)


def _spelled(row: Configuration, machine: Machine, engine: str) -> tuple[str, str]:
    """What to paste for a row into an engine, empty if it has no such drafter; and a note."""
    write = WRITERS.get(row.drafter) or drafter_kind(row.drafter).deployed
    spelled = write(row, machine) if write else {}
    absent = f"{engine} has none of the drafters that pay here, so there is nothing to paste."
    text, note = spelled.get(engine) or spelled.get("", ("", absent))
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
    gamma, samples = row.gamma, row.temperature > 0.0
    schedule = "constant" if row.policy == "fixed" else "heuristic"
    # By default vLLM's and llama.cpp's drafts are greedy also where the target samples.
    how = {"draft_sample_method": "probabilistic"} if samples else {}
    drawn = " --spec-draft-sampling probabilistic" if samples else ""
    target, draft = _target(machine), _draft(machine)
    by_sglang = (
        f"STANDALONE --speculative-draft-model-path {quote(draft.name)} "
        f"--speculative-num-steps {gamma} --speculative-eagle-topk 1"
    )
    return {
        "transformers": (
            f"assistant = AutoModelForCausalLM.from_pretrained({_loaded(draft)})\n"
            f"assistant.generation_config.num_assistant_tokens = {gamma}\n"
            f'assistant.generation_config.num_assistant_tokens_schedule = "{schedule}"\n'
            "assistant.generation_config.assistant_confidence_threshold = 0.0\n"
            + _generate(row, "assistant_model=assistant"),
            "Its own policy is the nearest to this one." if row.policy == "optimal" else "",
        ),
        "vLLM": (
            _by_vllm(row, machine, method="draft_model", model=draft.name, **how),
            _tokenizer_note(machine),
        ),
        "SGLang": (_by_sglang(row, machine, by_sglang), ""),
        "llama.cpp": (
            f"llama-server -m {_gguf(target, 'target.gguf')} --spec-type draft-simple "
            f"--spec-draft-model {_gguf(draft, 'draft.gguf')} "
            f"--spec-draft-n-max {gamma} --spec-draft-p-min 0{drawn}",
            _files_note(target, draft),
        ),
    }


def ngram(row: Configuration, machine: Machine) -> Spelled:
    """N-grams."""
    low, high = min(SIZES), max(SIZES)
    sizes = {"prompt_lookup_min": low, "prompt_lookup_max": high}
    lookup = f"prompt_lookup_num_tokens={row.gamma}, max_matching_ngram_size={high}"
    target = _target(machine)
    return {
        "transformers": (_generate(row, lookup), ""),
        "vLLM": (_by_vllm(row, machine, method="ngram", **sizes), _tokenizer_note(machine)),
        "SGLang": (
            f"{_by_sglang(row, machine, 'NGRAM')} --speculative-ngram-max-bfs-breadth 1",
            "It also remembers the texts of earlier requests.",
        ),
        "llama.cpp": (
            f"llama-server -m {_gguf(target, 'target.gguf')} --spec-type ngram-simple "
            f"--spec-ngram-simple-size-n {low} --spec-ngram-simple-size-m {row.gamma}",
            _files_note(target),
        ),
    }


def suffix(row: Configuration, machine: Machine) -> Spelled:
    """Counts of what followed."""
    note = f"It also looks into earlier answers of the server. {_tokenizer_note(machine)}"
    return {"vLLM": (_by_vllm(row, machine, method="suffix"), note.strip())}


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
    missing = [model.name for model in models if model.gguf is None]
    files = "GGUF files" if len(missing) > 1 else "a GGUF file"
    notes = [f"It needs {files} of {' and '.join(missing)}."] if missing else []
    notes += [
        f"{model.gguf} lies in the package {model.package}." for model in models if model.package
    ]
    notes += [
        f"{model.gguf} lies in {model.repository} on the hub."
        for model in models
        if model.repository
    ]
    return " ".join(notes)


def _tokenizer_note(machine: Machine) -> str:
    if _target(machine).is_file:
        return "With a GGUF file it wants --tokenizer and the original model's id."
    return ""


def _generate(row: Configuration, drafts: str) -> str:
    greedy = row.temperature == 0.0
    how = "do_sample=False" if greedy else f"do_sample=True, temperature={row.temperature:g}"
    return f"model.generate(**inputs, {drafts}, {how})"


def _by_vllm(row: Configuration, machine: Machine, **config: object) -> str:
    whole = {"num_speculative_tokens": row.gamma, **config}
    target = quote(_target(machine).name)
    return f"vllm serve {target} --speculative-config {quote(json.dumps(whole))}"


def _by_sglang(row: Configuration, machine: Machine, algorithm: str) -> str:
    # The tokens of a pass: the drafts, and the committed one before them.
    return (
        f"python -m sglang.launch_server --model-path {quote(_target(machine).name)} "
        f"--speculative-algorithm {algorithm} "
        f"--speculative-num-draft-tokens {row.gamma + 1}"
    )
