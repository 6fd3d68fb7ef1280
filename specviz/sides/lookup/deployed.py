"""N-grams and counts in other engines."""

from __future__ import annotations

from ...core.ngrams import SIZES
from ...remote.other_engines import (
    Deployed,
    EngineTexts,
    Machine,
    for_llama_cpp,
    for_sglang,
    for_vllm,
    generate,
    gguf_note,
    tokenizer_note,
)


def deployed_ngrams(row: Deployed, machine: Machine) -> EngineTexts:
    """The texts for `DrafterKind.deployed`, for n-grams."""
    shortest = min(SIZES)
    longest = max(SIZES)
    lookup = f"prompt_lookup_num_tokens={row.gamma}, max_matching_ngram_size={longest}"
    vllm_config: dict[str, object] = {
        "method": "ngram",
        "prompt_lookup_min": shortest,
        "prompt_lookup_max": longest,
    }
    sglang_text = f"{for_sglang(row, machine, 'NGRAM')} --speculative-ngram-max-bfs-breadth 1"
    llama_options = (
        "--spec-type ngram-simple "
        f"--spec-ngram-simple-size-n {shortest} --spec-ngram-simple-size-m {row.gamma}"
    )
    return {
        "transformers": (generate(row, lookup), ""),
        "vLLM": (for_vllm(row, machine, vllm_config), tokenizer_note(machine)),
        "SGLang": (sglang_text, "It also remembers the texts of earlier requests."),
        "llama.cpp": (for_llama_cpp(machine, llama_options), gguf_note(machine.target_files)),
    }


def deployed_counts(row: Deployed, machine: Machine) -> EngineTexts:
    """The texts for `DrafterKind.deployed`, for counts."""
    note = f"It also searches the server's earlier answers. {tokenizer_note(machine)}"
    text = for_vllm(row, machine, {"method": "suffix"})
    return {"vLLM": (text, note.strip())}
