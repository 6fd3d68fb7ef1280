"""The commands of other engines: the parts that drafters share. `DrafterKind.deployed` combines
them for its own drafter, and `measure.sweep.deploy` calls it.
"""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import Protocol, TypeAlias

EngineTexts: TypeAlias = dict[str, tuple[str, str]]
"""By engine, "" for all others: the settings to paste, empty if it cannot do it, and a note."""


class ModelFiles(Protocol):
    """The location of a model: `measure.sweep.types.ModelLocation`."""

    @property
    def name(self) -> str: ...

    @property
    def gguf(self) -> str | None: ...

    @property
    def package(self) -> str: ...

    @property
    def repository(self) -> str: ...

    @property
    def is_file(self) -> bool: ...


class Deployed(Protocol):
    """The row of a sweep to deploy: `measure.sweep.types.Configuration`."""

    @property
    def gamma(self) -> int: ...

    @property
    def policy(self) -> str: ...

    @property
    def temperature(self) -> float: ...


class Machine(Protocol):
    """The machine and the models of a measurement: `measure.sweep.types.Machine`."""

    @property
    def target_files(self) -> ModelFiles: ...

    @property
    def draft_files(self) -> ModelFiles: ...

    @property
    def exit_layers(self) -> int | None: ...


def loaded(model: ModelFiles) -> str:
    """The arguments with which transformers loads a model."""
    if model.gguf is None or not model.is_file:
        return repr(model.name)
    path = Path(model.gguf)
    return f"{str(path.parent)!r}, gguf_file={path.name!r}"


def generate(row: Deployed, drafts: str) -> str:
    """The call of transformers' `generate`. drafts: its arguments for the drafts."""
    if row.temperature == 0.0:
        sampling = "do_sample=False"
    else:
        sampling = f"do_sample=True, temperature={row.temperature:g}"
    return f"model.generate(**inputs, {drafts}, {sampling})"


def for_vllm(row: Deployed, machine: Machine, config: dict[str, object]) -> str:
    """The command of vLLM's server. config: of the speculation, without the number of drafts."""
    whole_config = {"num_speculative_tokens": row.gamma, **config}
    target = quote(machine.target_files.name)
    return f"vllm serve {target} --speculative-config {quote(json.dumps(whole_config))}"


def for_sglang(row: Deployed, machine: Machine, algorithm: str) -> str:
    """The command of SGLang's server. algorithm: of the speculation, with its options."""
    # The tokens of a pass: the drafts, and the committed one before them.
    return (
        f"python -m sglang.launch_server --model-path {quote(machine.target_files.name)} "
        f"--speculative-algorithm {algorithm} "
        f"--speculative-num-draft-tokens {row.gamma + 1}"
    )


def for_llama_cpp(machine: Machine, speculation: str) -> str:
    """The command of llama.cpp's server. speculation: its options."""
    return f"llama-server -m {gguf_file(machine.target_files, 'target.gguf')} {speculation}"


def gguf_file(model: ModelFiles, placeholder: str) -> str:
    """The GGUF file of a model for a shell."""
    return quote(model.gguf or placeholder)


def gguf_note(*models: ModelFiles) -> str:
    """A note on which GGUF files are still needed, and where the others are."""
    notes: list[str] = []
    missing = [model.name for model in models if model.gguf is None]
    if missing:
        files = "GGUF files" if len(missing) > 1 else "a GGUF file"
        notes.append(f"It needs {files} of {' and '.join(missing)}.")
    for model in models:
        if model.package:
            notes.append(f"{model.gguf} is in the package {model.package}.")
        if model.repository:
            notes.append(f"{model.gguf} is in {model.repository} on the hub.")
    return " ".join(notes)


def tokenizer_note(machine: Machine) -> str:
    """A note on what else vLLM needs for a file given by its path; empty for other models."""
    if machine.target_files.is_file:
        return "For a GGUF file, also pass --tokenizer with the original model's id."
    return ""
