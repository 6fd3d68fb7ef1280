"""Why a task failed, as a sentence for the visitor, and whether its process can go on.

Errors are recognised by their names and texts, so that this module does not import torch.
"""

from __future__ import annotations

from ..base.errors import SpecvizError, causes_of, is_memory_error, ran_out_of_memory

FAILED = (
    "Something went wrong on the server, and the details are in its log: press Run to try again."
)
LOST = (
    "The models' process ended, perhaps because memory ran out, and starts again with the next "
    "run: press Run, with a shorter length or a smaller pair if it happens twice."
)
NO_MEMORY = (
    "The models ran out of memory: press Run with a shorter prompt or length, or choose a "
    "smaller pair."
)
BROKEN = (
    "The accelerator reported an error, so the models are loaded again for the next run: press Run."
)
SILENT = (
    "The models did not respond for too long and are loaded again for the next run: press Run, "
    "with a smaller pair if it happens twice."
)

# From torch and the libraries below it.
_DEVICE = ("CUDA error", "HIP error", "CUBLAS_STATUS", "CUDNN_STATUS", "device-side assert")


def sentence_of(error: BaseException) -> str:
    """The sentence for the visitor about an error."""
    if isinstance(error, SpecvizError):
        return str(error)
    if ran_out_of_memory(error):
        return NO_MEMORY
    if is_fatal(error):
        return BROKEN
    return FAILED


def is_fatal(error: BaseException) -> bool:
    """Whether the process can never use the device again, as after an error in a kernel. It still
    can after memory ran out."""
    for cause in causes_of(error):
        if not isinstance(cause, RuntimeError) or is_memory_error(cause):
            continue
        if type(cause).__name__ == "AcceleratorError":
            return True
        if any(words in str(cause) for words in _DEVICE):
            return True
    return False
