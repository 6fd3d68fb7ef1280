"""Compile Triton's kernels for GPUs that need not be present, and report their resource use.

    python -m scripts.compile_kernels [--gpu 80 90 120] [--model llama-3.1-8b ...]

The sizes are those of published models; no weights are needed. Ends with status 1 if a kernel
spills registers, or needs more shared memory than any GPU of its generation has.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers

if TYPE_CHECKING:
    from specviz.sides.fast_gpu.triton_pass import Call

CAPACITY = 1024  # positions of the cache
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024, 120: 99 * 1024}  # of a block of threads
POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int8: "*i8",
    torch.uint8: "*u8",
}


@dataclass(frozen=True)
class Sizes:
    """A published model. head: numbers of a head. family: as transformers names its classes."""

    family: str
    width: int
    between: int
    heads: int
    kv_heads: int
    head: int
    vocab: int

    def model(self, dtype: torch.dtype) -> Any:
        """One layer of it, without weights."""
        config = getattr(transformers, f"{self.family}Config")(
            hidden_size=self.width,
            intermediate_size=self.between,
            num_hidden_layers=1,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head,
            vocab_size=self.vocab,
            tie_word_embeddings=False,
        )
        with torch.device("meta"):
            return getattr(transformers, f"{self.family}ForCausalLM")(config).to(dtype)


MODELS = {
    "qwen2.5-0.5b": Sizes("Qwen2", 896, 4864, 14, 2, 64, 151936),
    "qwen2.5-1.5b": Sizes("Qwen2", 1536, 8960, 12, 2, 128, 151936),
    "qwen2.5-7b": Sizes("Qwen2", 3584, 18944, 28, 4, 128, 152064),
    "qwen3-1.7b": Sizes("Qwen3", 2048, 6144, 16, 8, 128, 151936),
    "llama-3.2-1b": Sizes("Llama", 2048, 8192, 32, 8, 64, 128256),
    "llama-3.1-8b": Sizes("Llama", 4096, 14336, 32, 8, 128, 128256),
}


@dataclass(frozen=True)
class Compiled:
    """A kernel for a GPU. spilled: bytes of registers spilled to memory. shared: bytes of
    shared memory. loads: asynchronous copies of 16 bytes."""

    kernel: str
    gpu: int
    registers: int
    spilled: int
    shared: int
    copies_ahead: int

    @property
    def fits(self) -> bool:
        return self.spilled == 0 and self.shared <= SHARED_BYTES[self.gpu]


def compiled_kernels(sizes: Sizes, gpus: Sequence[int], dtype: torch.dtype) -> Iterator[Compiled]:
    """Each kernel of a model for each GPU."""
    from specviz.sides.fast_gpu.triton_pass import TritonPass

    for call in TritonPass(sizes.model(dtype)).compile_calls(CAPACITY):
        for gpu in gpus:
            yield compiled(call, gpu)


def compiled(call: Call, gpu: int) -> Compiled:
    """A kernel with the sizes of a call. gpu: such as 90, for compute capability 9.0."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature: dict[str, str] = {}
    aligned: dict[tuple[int, ...], list[list[Any]]] = {}
    for index, name in enumerate(call.kernel.arg_names):
        if name in call.sizes:
            signature[name] = "constexpr"
        elif isinstance(call.arguments[index], torch.Tensor):
            signature[name] = POINTERS[call.arguments[index].dtype]
            aligned[(index,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "i32"
    source = ASTSource(call.kernel, signature, call.sizes, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", gpu, 32), options=call.options)
    report = assembler_report(made.asm["ptx"], gpu)
    registers = re.search(r"Used (\d+) registers", report)
    spilled = re.search(r"(\d+) bytes spill stores", report)
    assert registers and spilled, report
    return Compiled(
        kernel=call.kernel.__name__,
        gpu=gpu,
        registers=int(registers[1]),
        spilled=int(spilled[1]),
        shared=made.metadata.shared,
        copies_ahead=made.asm["ptx"].count("cp.async.cg.shared.global"),
    )


def assembler_report(ptx: str, gpu: int) -> str:
    """The report on registers from ptxas, which is in Triton's wheel."""
    from triton.backends.nvidia.compiler import get_ptxas

    name = f"sm_{gpu}"
    if gpu >= 90:
        name += "a"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [get_ptxas(gpu).path, "-v", f"-arch={name}", file.name, "-o", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", type=int, nargs="+", choices=SHARED_BYTES, default=[80, 90, 120])
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    options = parser.parse_args()
    print("| model | kernel | sm | registers | spilled | shared bytes | copies ahead |")
    print("|---|---|---|---|---|---|---|")
    all_fit = True
    for name in options.model:
        dtype = getattr(torch, options.dtype)
        for kernel in compiled_kernels(MODELS[name], options.gpu, dtype):
            all_fit = all_fit and kernel.fits
            print(
                f"| {name} | {kernel.kernel} | {kernel.gpu} | {kernel.registers} "
                f"| {kernel.spilled} | {kernel.shared} | {kernel.copies_ahead} |",
                flush=True,
            )
    return int(not all_fit)


if __name__ == "__main__":
    sys.exit(main())
