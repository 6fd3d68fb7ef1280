"""Which models Triton's kernels may serve, and their compilation beside the first runs.

Triton comes with torch's CUDA builds, and needs a C compiler and Python's headers. Where anything
is missing, passes are computed by torch's kernels (`llama_pass.py`), and a sentence says why.
"""

from __future__ import annotations

import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from ...base.environment import KERNELS
from ...core.llama_family import is_llama_family

if TYPE_CHECKING:
    from .triton_pass import TritonPass

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OLDEST = (8, 0)  # compute capability of an A100: older GPUs have no asynchronous copies
CAPACITY = 256  # of the cache that kernels are compiled for: they take any length

COMPILING = "faster ones are being compiled"
UNTRIED = "faster ones have not been tried yet"


def kernels_refusal(model: Any) -> str | None:
    """Why Triton's kernels cannot serve a model on its device; None if they may.

    A trial run decides in the end.
    """
    if KERNELS.read() != "triton":
        return f"{KERNELS.name} says so"
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if not is_llama_family(model):
        return "its architecture has no others"
    if any(hasattr(module, "packed_as") for module in model.modules()):
        return "its weights are packed"
    if model.dtype not in DTYPES:
        return f"there are no others for {str(model.dtype).removeprefix('torch.')}"
    return device_refusal(model.device)


def device_refusal(device: torch.device) -> str | None:
    """Why a device runs no kernels of Triton; None if it does."""
    if device.type != "cuda" or torch.version.hip is not None:
        return "others need an NVIDIA GPU"
    if torch.cuda.get_device_capability(device) < OLDEST:
        return "the GPU is older than Ampere"
    return None


class KernelCompilation:
    """Triton's kernels for one model, compiled in a thread of their own while the model runs
    without them.

    reason: why passes are computed without them; None once they are in use. It does not keep the
    model alive once it is done, but its weights.
    """

    def __init__(self, model: Any) -> None:
        self.reason = kernels_refusal(model)
        self._compiled: TritonPass | None = None
        self._error: str | None = None
        self._thread: threading.Thread | None = None
        if self.reason is None:
            self.reason = COMPILING
            self._thread = threading.Thread(target=self._compile, args=(model,), name="triton")
            self._thread.start()

    def take(self) -> TritonPass | None:
        """The pass, once, as soon as its kernels are compiled. Whoever takes it tries it and says
        in `reason` what came of that."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        self.reason = self._error or UNTRIED
        compiled = self._compiled
        self._compiled = None
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
    """A model's pass with its kernels compiled; None if the program ends meanwhile."""
    from .triton_pass import TritonPass, is_interpreted, on_device

    made = TritonPass(model)
    if is_interpreted():
        return made
    with on_device(model.device):
        for call in made.compile_calls(CAPACITY):
            if not threading.main_thread().is_alive():
                return None
            call.compile()
    return made


def first_line(error: BaseException) -> str:
    """What an error says, or its kind if it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
