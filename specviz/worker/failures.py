"""What went wrong in the models' process, as a sentence, and whether the process can go on.

Errors are told by their names and words: whoever reads them need not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator

FAILED = (
    "Something went wrong that is not your fault. The log has the details; press Run to try again."
)
LOST = (
    "The models' process ended, perhaps for want of memory. It starts again with the next run: "
    "press Run, with a shorter length or a smaller pair if it happens twice."
)
NO_MEMORY = (
    "The models ran out of memory: press Run with a shorter prompt or length, or choose a "
    "smaller pair."
)
BROKEN = (
    "The accelerator reported an error, so the models start again with the next run: press Run."
)
SILENT = (
    "The models gave no sign of life for too long, so they start again with the next run: press "
    "Run, with a smaller pair if it happens twice."
)

# What torch and the libraries below it write; "can't allocate" is its allocator on a processor.
_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC")
_DEVICE = ("CUDA error", "HIP error", "CUBLAS_STATUS", "CUDNN_STATUS", "device-side assert")


def wants_memory(error: BaseException) -> bool:
    """Whether an error, or what caused it, is a want of memory."""
    return any(map(_wants_memory, _causes(error)))


def sentence_of(error: BaseException) -> str:
    """What a visitor is told about an error that nobody foresaw."""
    if wants_memory(error):
        return NO_MEMORY
    return BROKEN if is_fatal(error) else FAILED


def is_fatal(error: BaseException) -> bool:
    """Whether no later call of the process can use the device: so it is after an error in a
    kernel. Being out of memory is not fatal."""
    return any(_breaks_device(cause) for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _wants_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _MEMORY)


def _breaks_device(error: BaseException) -> bool:
    if not isinstance(error, RuntimeError) or _wants_memory(error):
        return False
    named = type(error).__name__ == "AcceleratorError"
    return named or any(words in str(error) for words in _DEVICE)
