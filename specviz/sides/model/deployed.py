"""A draft model in other engines."""

from __future__ import annotations

from shlex import quote

from ...remote.other_engines import (
    Deployed,
    EngineTexts,
    Machine,
    for_llama_cpp,
    for_sglang,
    for_vllm,
    generate,
    gguf_file,
    gguf_note,
    loaded,
    tokenizer_note,
)

CONFIDENCE_THRESHOLD = 0.4
"""transformers' default confidence threshold: below it a draft ends. It is the nearest equivalent
of the policy "confidence" in transformers and llama.cpp."""


def deployed_model(row: Deployed, machine: Machine) -> EngineTexts:
    """The texts for `DrafterKind.deployed`."""
    gamma = row.gamma
    target = machine.target_files
    draft = machine.draft_files
    schedule = "constant"
    if row.policy in ("heuristic", "optimal"):
        schedule = "heuristic"
    threshold = 0.0
    if row.policy == "confidence":
        threshold = CONFIDENCE_THRESHOLD
    transformers_text = (
        f"assistant = AutoModelForCausalLM.from_pretrained({loaded(draft)})\n"
        f"assistant.generation_config.num_assistant_tokens = {gamma}\n"
        f'assistant.generation_config.num_assistant_tokens_schedule = "{schedule}"\n'
        f"assistant.generation_config.assistant_confidence_threshold = {threshold}\n"
        f"{generate(row, 'assistant_model=assistant')}"
    )
    policy_note = ""
    if row.policy in ("optimal", "confidence"):
        policy_note = "Its own policy is the nearest to this one."
    vllm_config: dict[str, object] = {"method": "draft_model", "model": draft.name}
    llama_options = (
        "--spec-type draft-simple "
        f"--spec-draft-model {gguf_file(draft, 'draft.gguf')} "
        f"--spec-draft-n-max {gamma} --spec-draft-p-min {threshold:g}"
    )
    if row.temperature > 0.0:
        # By default vLLM's and llama.cpp's drafts are greedy also where the target samples.
        vllm_config["draft_sample_method"] = "probabilistic"
        llama_options += " --spec-draft-sampling probabilistic"
    sglang_algorithm = (
        f"STANDALONE --speculative-draft-model-path {quote(draft.name)} "
        f"--speculative-num-steps {gamma} --speculative-eagle-topk 1"
    )
    return {
        "transformers": (transformers_text, policy_note),
        "vLLM": (for_vllm(row, machine, vllm_config), tokenizer_note(machine)),
        "SGLang": (for_sglang(row, machine, sglang_algorithm), ""),
        "llama.cpp": (for_llama_cpp(machine, llama_options), gguf_note(target, draft)),
    }
