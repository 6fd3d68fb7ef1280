"""A row's settings as other engines spell them, each with the version that it was read from.

`DrafterKind.deployed` names the function of this module, or of a package, that writes a drafter's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeAlias

from ...core.kinds import resolved
from ...kinds import drafter_kind
from .types import Configuration, EngineSettings, Machine

NGRAM_SIZES = (2, 4)  # the shortest and the longest match that the drafter "ngram" looks for
NOT_THERE = "{engine} has no such drafter, so there is nothing to paste."
SERVED_BY_SGLANG = "python -m sglang.launch_server --model-path {target} --speculative-algorithm "

Spelled: TypeAlias = tuple[str, str]
"""What to paste, and a note; an empty text where the engine cannot do this."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where an engine's options were read. version: of the software or its documentation."""

    engine: str
    version: str
    address: str


TRANSFORMERS = Source(
    "transformers", "5.23.0", "https://huggingface.co/docs/transformers/main/en/assisted_decoding"
)
VLLM = Source(
    "vLLM",
    "documentation of November 2026, commit 04329df (release 0.33.0 is the newest)",
    "https://docs.vllm.ai/en/latest/features/speculative_decoding/",
)
SGLANG = Source(
    "SGLang", "0.5.23", "https://docs.sglang.io/docs/advanced_features/speculative_decoding"
)
LLAMA_CPP = Source(
    "llama.cpp",
    "tools/server/README.md of November 2026, commit 00dc805",
    "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
)


SOURCES = (TRANSFORMERS, VLLM, SGLANG, LLAMA_CPP)


def engine_settings(row: Configuration, machine: Machine) -> tuple[EngineSettings, ...]:
    """The row for transformers, vLLM, SGLang and llama.cpp."""
    write = drafter_kind(row.drafter).deployed
    result = []
    for source in SOURCES:
        found = resolved(write)(row, machine, source.engine) if write else None
        text, note = found or ("", NOT_THERE.format(engine=source.engine))
        if text and row.policy != "fixed" and source is not TRANSFORMERS:
            note = f"It drafts {row.gamma} tokens in every round: it has no such policy. {note}"
        result.append(
            EngineSettings(source.engine, source.version, source.address, text, note.strip())
        )
    return tuple(result)


def draft_model(row: Configuration, machine: Machine, engine: str) -> Spelled | None:
    """A draft model."""
    gamma, samples = row.gamma, row.temperature > 0.0
    if engine == TRANSFORMERS.engine:
        schedule = "constant" if row.policy == "fixed" else "heuristic"
        text = (
            f"assistant = AutoModelForCausalLM.from_pretrained({machine.draft!r})\n"
            f"assistant.generation_config.num_assistant_tokens = {gamma}\n"
            f'assistant.generation_config.num_assistant_tokens_schedule = "{schedule}"\n'
            "assistant.generation_config.assistant_confidence_threshold = 0.0\n"
            f"model.generate(**inputs, assistant_model=assistant, {_sampling(row)})"
        )
        nearest = "Its own policy is the nearest to this one."
        return text, nearest if row.policy == "optimal" else ""
    if engine == VLLM.engine:
        # By default its draft is greedy also where the target samples.
        how = {"draft_sample_method": "probabilistic"} if samples else {}
        return _served_by_vllm(row, machine, method="draft_model", model=machine.draft, **how), ""
    if engine == SGLANG.engine:
        return (
            f"{SERVED_BY_SGLANG.format(target=machine.target)}STANDALONE "
            f"--speculative-draft-model-path {machine.draft} "
            f"--speculative-num-steps {gamma} --speculative-eagle-topk 1 {_width(row)}"
        ), ""
    if engine == LLAMA_CPP.engine:
        text = (
            "llama-server -m target.gguf --spec-type draft-simple --spec-draft-model draft.gguf "
            f"--spec-draft-n-max {gamma} --spec-draft-p-min 0"
            f"{' --spec-draft-sampling probabilistic' if samples else ''}"
        )
        return text, f"It needs GGUF files of {machine.target} and {machine.draft}."
    return None


def ngram(row: Configuration, machine: Machine, engine: str) -> Spelled | None:
    """N-grams."""
    low, high = NGRAM_SIZES
    if engine == TRANSFORMERS.engine:
        return (
            f"model.generate(**inputs, prompt_lookup_num_tokens={row.gamma}, "
            f"max_matching_ngram_size={high}, {_sampling(row)})"
        ), ""
    if engine == VLLM.engine:
        sizes = {"prompt_lookup_min": low, "prompt_lookup_max": high}
        return _served_by_vllm(row, machine, method="ngram", **sizes), ""
    if engine == SGLANG.engine:
        return (
            f"{SERVED_BY_SGLANG.format(target=machine.target)}NGRAM {_width(row)} "
            "--speculative-ngram-max-bfs-breadth 1"
        ), "It also remembers the texts of earlier requests."
    if engine == LLAMA_CPP.engine:
        return (
            "llama-server -m target.gguf --spec-type ngram-simple "
            f"--spec-ngram-simple-size-n {low} --spec-ngram-simple-size-m {row.gamma}"
        ), f"It needs a GGUF file of {machine.target}."
    return None


def suffix(row: Configuration, machine: Machine, engine: str) -> Spelled | None:
    """Counts of what followed."""
    if engine != VLLM.engine:
        return None
    text = _served_by_vllm(row, machine, method="suffix")
    return text, "It also looks into earlier answers of the server."


def early_exit(row: Configuration, machine: Machine, engine: str) -> Spelled | None:
    """The target's own first layers."""
    if engine != TRANSFORMERS.engine or machine.exit_layers is None:
        return None
    return (
        f"model.generate(**inputs, assistant_early_exit={machine.exit_layers}, {_sampling(row)})",
        "It is meant for models that were trained for early exit.",
    )


def head(row: Configuration, machine: Machine, engine: str) -> Spelled:
    """A head: which form an engine reads depends on the head."""
    return "", "Settings for a head are not written here."


def _sampling(row: Configuration) -> str:
    return (
        "do_sample=False"
        if row.temperature == 0.0
        else (f"do_sample=True, temperature={row.temperature:g}")
    )


def _served_by_vllm(row: Configuration, machine: Machine, **config: object) -> str:
    whole = {"num_speculative_tokens": row.gamma, **config}
    return f"vllm serve {machine.target} --speculative-config '{json.dumps(whole)}'"


def _width(row: Configuration) -> str:
    # The tokens of a pass: the drafts, and the committed one before them.
    return f"--speculative-num-draft-tokens {row.gamma + 1}"
