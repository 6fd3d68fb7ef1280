"""A row's settings as other engines spell them, each with the version that it was read from."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .types import Configuration, EngineSettings, Machine

NGRAM_SIZES = (2, 4)  # the shortest and the longest match that the drafter "ngram" looks for
NOT_THERE = "{engine} has no such drafter, so there is nothing to paste."


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


def engine_settings(row: Configuration, machine: Machine) -> tuple[EngineSettings, ...]:
    """The row for transformers, vLLM, SGLang and llama.cpp."""
    writers = (
        (TRANSFORMERS, _transformers),
        (VLLM, _vllm),
        (SGLANG, _sglang),
        (LLAMA_CPP, _llama_cpp),
    )
    result = []
    for source, write in writers:
        text, note = write(row, machine)
        if row.drafter == "head":
            note = "Settings for a head are not written here."
        elif not text and not note:
            note = NOT_THERE.format(engine=source.engine)
        elif text and row.policy != "fixed" and source is not TRANSFORMERS:
            note = f"It drafts {row.gamma} tokens in every round: it has no such policy. {note}"
        result.append(
            EngineSettings(source.engine, source.version, source.address, text, note.strip())
        )
    return tuple(result)


def _transformers(row: Configuration, machine: Machine) -> tuple[str, str]:
    sampling = (
        "do_sample=False"
        if row.temperature == 0.0
        else f"do_sample=True, temperature={row.temperature:g}"
    )
    if row.drafter == "model":
        schedule = "constant" if row.policy == "fixed" else "heuristic"
        text = (
            f"assistant = AutoModelForCausalLM.from_pretrained({machine.draft!r})\n"
            f"assistant.generation_config.num_assistant_tokens = {row.gamma}\n"
            f'assistant.generation_config.num_assistant_tokens_schedule = "{schedule}"\n'
            "assistant.generation_config.assistant_confidence_threshold = 0.0\n"
            f"model.generate(**inputs, assistant_model=assistant, {sampling})"
        )
        return text, (
            "Its own policy is the nearest to this one." if row.policy == "optimal" else ""
        )
    if row.drafter == "ngram":
        text = (
            f"model.generate(**inputs, prompt_lookup_num_tokens={row.gamma}, "
            f"max_matching_ngram_size={NGRAM_SIZES[1]}, {sampling})"
        )
        return text, ""
    if row.drafter == "early-exit" and machine.exit_layers is not None:
        text = f"model.generate(**inputs, assistant_early_exit={machine.exit_layers}, {sampling})"
        return text, "It is meant for models that were trained for early exit."
    return "", ""


def _vllm(row: Configuration, machine: Machine) -> tuple[str, str]:
    config: dict[str, object] = {"num_speculative_tokens": row.gamma}
    note = ""
    if row.drafter == "model":
        config |= {"method": "draft_model", "model": machine.draft}
        if row.temperature > 0.0:
            # By default its draft is greedy also where the target samples.
            config["draft_sample_method"] = "probabilistic"
    elif row.drafter == "ngram":
        low, high = NGRAM_SIZES
        config |= {"method": "ngram", "prompt_lookup_min": low, "prompt_lookup_max": high}
    elif row.drafter == "suffix":
        config["method"] = "suffix"
        note = "It also looks into earlier answers of the server."
    else:
        return "", ""
    return f"vllm serve {machine.target} --speculative-config '{json.dumps(config)}'", note


def _sglang(row: Configuration, machine: Machine) -> tuple[str, str]:
    begin = f"python -m sglang.launch_server --model-path {machine.target}"
    # The tokens of a pass: the drafts, and the committed one before them.
    width = f"--speculative-num-draft-tokens {row.gamma + 1}"
    if row.drafter == "model":
        return (
            f"{begin} --speculative-algorithm STANDALONE "
            f"--speculative-draft-model-path {machine.draft} "
            f"--speculative-num-steps {row.gamma} --speculative-eagle-topk 1 {width}"
        ), ""
    if row.drafter == "ngram":
        text = (
            f"{begin} --speculative-algorithm NGRAM {width} --speculative-ngram-max-bfs-breadth 1"
        )
        return text, "It also remembers the texts of earlier requests."
    return "", ""


def _llama_cpp(row: Configuration, machine: Machine) -> tuple[str, str]:
    if row.drafter == "model":
        sampling = " --spec-draft-sampling probabilistic" if row.temperature > 0.0 else ""
        text = (
            "llama-server -m target.gguf --spec-type draft-simple --spec-draft-model draft.gguf "
            f"--spec-draft-n-max {row.gamma} --spec-draft-p-min 0{sampling}"
        )
        return text, f"It needs GGUF files of {machine.target} and {machine.draft}."
    if row.drafter == "ngram":
        text = (
            "llama-server -m target.gguf --spec-type ngram-simple "
            f"--spec-ngram-simple-size-n {NGRAM_SIZES[0]} --spec-ngram-simple-size-m {row.gamma}"
        )
        return text, f"It needs a GGUF file of {machine.target}."
    return "", ""
