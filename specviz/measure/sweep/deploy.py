"""A row's settings as other engines spell them, each with the version that it was read from.

`DrafterKind.deployed` names the function of this module, or of a package, that writes a drafter's:
what to paste and a note, by engine; an empty text where the engine cannot do this.
"""

from __future__ import annotations

import json
from typing import TypeAlias

from ...core.kinds import resolved
from ...kinds import drafter_kind
from ...sides.lookup.ngram import SIZES
from .types import Configuration, EngineSettings, Machine

Spelled: TypeAlias = dict[str, tuple[str, str]]

SOURCES = (
    (
        "transformers",
        "5.23.0",
        "https://huggingface.co/docs/transformers/main/en/assisted_decoding",
    ),
    (
        "vLLM",
        "documentation of November 2026, commit 04329df (release 0.33.0 is the newest)",
        "https://docs.vllm.ai/en/latest/features/speculative_decoding/",
    ),
    ("SGLang", "0.5.23", "https://docs.sglang.io/docs/advanced_features/speculative_decoding"),
    (
        "llama.cpp",
        "tools/server/README.md of November 2026, commit 00dc805",
        "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    ),
)
"""Engines, the version of the software or its documentation, and where it was read."""
HAS_POLICIES = "transformers"


def engine_settings(row: Configuration, machine: Machine) -> tuple[EngineSettings, ...]:
    """The row for transformers, vLLM, SGLang and llama.cpp."""
    write = drafter_kind(row.drafter).deployed
    spelled: Spelled = resolved(write)(row, machine) if write else {}
    result = []
    for engine, version, address in SOURCES:
        absent = f"{engine} has no such drafter, so there is nothing to paste."
        text, note = spelled.get(engine) or spelled.get("", ("", absent))
        if text and row.policy != "fixed" and engine != HAS_POLICIES:
            note = f"It drafts {row.gamma} tokens in every round: it has no such policy. {note}"
        result.append(EngineSettings(engine, version, address, text, note.strip()))
    return tuple(result)


def draft_model(row: Configuration, machine: Machine) -> Spelled:
    """A draft model."""
    gamma, draft, samples = row.gamma, machine.draft, row.temperature > 0.0
    schedule = "constant" if row.policy == "fixed" else "heuristic"
    # By default vLLM's and llama.cpp's drafts are greedy also where the target samples.
    how = {"draft_sample_method": "probabilistic"} if samples else {}
    drawn = " --spec-draft-sampling probabilistic" if samples else ""
    by_sglang = (
        f"STANDALONE --speculative-draft-model-path {draft} --speculative-num-steps {gamma} "
        "--speculative-eagle-topk 1"
    )
    return {
        "transformers": (
            f"assistant = AutoModelForCausalLM.from_pretrained({draft!r})\n"
            f"assistant.generation_config.num_assistant_tokens = {gamma}\n"
            f'assistant.generation_config.num_assistant_tokens_schedule = "{schedule}"\n'
            "assistant.generation_config.assistant_confidence_threshold = 0.0\n"
            + _generate(row, "assistant_model=assistant"),
            "Its own policy is the nearest to this one." if row.policy == "optimal" else "",
        ),
        "vLLM": (_by_vllm(row, machine, method="draft_model", model=draft, **how), ""),
        "SGLang": (_by_sglang(row, machine, by_sglang), ""),
        "llama.cpp": (
            "llama-server -m target.gguf --spec-type draft-simple --spec-draft-model draft.gguf "
            f"--spec-draft-n-max {gamma} --spec-draft-p-min 0{drawn}",
            f"It needs GGUF files of {machine.target} and {draft}.",
        ),
    }


def ngram(row: Configuration, machine: Machine) -> Spelled:
    """N-grams."""
    low, high = min(SIZES), max(SIZES)
    sizes = {"prompt_lookup_min": low, "prompt_lookup_max": high}
    lookup = f"prompt_lookup_num_tokens={row.gamma}, max_matching_ngram_size={high}"
    return {
        "transformers": (_generate(row, lookup), ""),
        "vLLM": (_by_vllm(row, machine, method="ngram", **sizes), ""),
        "SGLang": (
            f"{_by_sglang(row, machine, 'NGRAM')} --speculative-ngram-max-bfs-breadth 1",
            "It also remembers the texts of earlier requests.",
        ),
        "llama.cpp": (
            "llama-server -m target.gguf --spec-type ngram-simple "
            f"--spec-ngram-simple-size-n {low} --spec-ngram-simple-size-m {row.gamma}",
            f"It needs a GGUF file of {machine.target}.",
        ),
    }


def suffix(row: Configuration, machine: Machine) -> Spelled:
    """Counts of what followed."""
    note = "It also looks into earlier answers of the server."
    return {"vLLM": (_by_vllm(row, machine, method="suffix"), note)}


def early_exit(row: Configuration, machine: Machine) -> Spelled:
    """The target's own first layers."""
    text = _generate(row, f"assistant_early_exit={machine.exit_layers}")
    return {"transformers": (text, "It is meant for models that were trained for early exit.")}


def head(row: Configuration, machine: Machine) -> Spelled:
    """A head: which form an engine reads depends on the head."""
    return {"": ("", "Settings for a head are not written here.")}


def _generate(row: Configuration, drafts: str) -> str:
    greedy = row.temperature == 0.0
    how = "do_sample=False" if greedy else f"do_sample=True, temperature={row.temperature:g}"
    return f"model.generate(**inputs, {drafts}, {how})"


def _by_vllm(row: Configuration, machine: Machine, **config: object) -> str:
    whole = {"num_speculative_tokens": row.gamma, **config}
    return f"vllm serve {machine.target} --speculative-config '{json.dumps(whole)}'"


def _by_sglang(row: Configuration, machine: Machine, algorithm: str) -> str:
    # The tokens of a pass: the drafts, and the committed one before them.
    return (
        f"python -m sglang.launch_server --model-path {machine.target} --speculative-algorithm "
        f"{algorithm} --speculative-num-draft-tokens {row.gamma + 1}"
    )
