"""Decide which models may use Triton's kernels, and compile these during the first runs.

Triton comes with torch's CUDA builds, and needs a C compiler and Python's headers. If anything is
missing, torch's kernels compute the passes (`llama_pass.py`), and a sentence gives the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from ...base.environment import KERNELS
from ...core.llama_family import is_llama_family

if TYPE_CHECKING:
    from .triton_pass import TritonPass

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OLDEST = (8, 0)  # compute capability of an A100: older GPUs have no asynchronous copies
CAPACITY = 256  # cache capacity for the compilation; kernels take any capacity

TRITON_FORM = "Triton's kernels"  # the suffix of the name of an engine that runs them
COMPILING = "Triton's are being compiled"
UNTRIED = "Triton's have not been tried yet"


def kernels_refusal(model: Any) -> str | None:
    """The reason why Triton's kernels cannot run a model on its device; None if they may. A trial
    run decides in the end.
    """
    if KERNELS.read() != "triton":
        return f"{KERNELS.name} asks for them"
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if not is_llama_family(model):
        return "Triton's do not cover this architecture"
    if any(hasattr(module, "packed_as") for module in model.modules()):
        return "Triton's do not read these packed weights"
    if model.dtype not in DTYPES:
        return f"Triton's do not run in {str(model.dtype).removeprefix('torch.')}"
    return device_refusal(model.device)


def device_refusal(device: torch.device) -> str | None:
    """The reason why a device cannot run Triton's kernels; None if it can."""
    if device.type != "cuda" or torch.version.hip is not None:
        return "Triton's need an NVIDIA GPU"
    if torch.cuda.get_device_capability(device) < OLDEST:
        return "the GPU is older than Ampere"
    return None


class KernelCompilation:
    """The compilation of Triton's kernels for one model, in a thread of its own while the model
    runs without them. refusal: why passes do not use them; None once they do. After the compilation
    it keeps the model's weights alive, but not the model.
    """

    def __init__(self, model: Any) -> None:
        self.refusal = kernels_refusal(model)
        self._compiled: TritonPass | None = None
        self._error: str | None = None
        self._thread: threading.Thread | None = None
        if self.refusal is None:
            self.refusal = COMPILING
            self._thread = threading.Thread(target=self._compile, args=(model,), name="triton")
            self._thread.start()

    def take(self, trial: Callable[[TritonPass], str | None]) -> TritonPass | None:
        """Return the compiled pass, once, if `trial` gives no reason against it."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        self.refusal = self._error or UNTRIED
        compiled = self._compiled
        self._compiled = None
        if compiled is not None:
            self.refusal = trial(compiled)
        if self.refusal is not None:
            return None
        return compiled

    def wait(self) -> None:
        """Wait until the kernels are compiled, or cannot be."""
        if self._thread is not None:
            self._thread.join()

    def _compile(self, model: Any) -> None:
        try:
            with torch.inference_mode():
                self._compiled = compiled_pass(model)
        except Exception as error:  # of Triton, its compilers, the driver: all mean the same
            self._error = first_line(error)


def compiled_pass(model: Any) -> TritonPass | None:
    """Compile the kernels of a model's pass; None if the program ends meanwhile."""
    from .triton_pass import TritonPass, is_interpreted, on_device

    triton_pass = TritonPass(model)
    if is_interpreted():
        return triton_pass
    with on_device(model.device):
        for call in triton_pass.compile_calls(CAPACITY):
            if not threading.main_thread().is_alive():
                return None
            call.compile()
    return triton_pass


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    text = str(error).strip()
    if not text:
        return type(error).__name__
    return text.splitlines()[0]
