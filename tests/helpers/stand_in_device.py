"""A stand-in for a GPU: its tensors are in the host's memory, but behave like a GPU's.

An operation on tensors of the host and of the device fails, as with CUDA, and each wait of the
host for a value of the device is recorded. So a machine without a GPU shows whether decoding would
run on one, and how often the host would wait.

It is a `PrivateUse1` backend of torch, registered from Python: factories such as `torch.zeros`
have kernels for it, and all other operations arrive in `StandInTensor.__torch_dispatch__`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.backend_registration import (
    _DummyPrivateUse1Hook,
    _setup_privateuseone_for_python_backend,
)

NAME = "standin"
aten = torch.ops.aten

COPIES = {"copy_", "_copy_from", "_to_copy"}  # may take tensors of both places
FACTORIES = (
    "empty.memory_format",
    "empty_strided",
    "zeros",
    "ones",
    "full",
    "arange",
    "arange.start",
    "arange.start_step",
    "rand",
    "rand.generator",
    "randn",
    "randn.generator",
    "scalar_tensor",
    "tril_indices",
)
# Of these no part waits for a value or takes another place: to run their many parts one by one
# takes most of a pass.
WHOLE = {"linear", "matmul", "scaled_dot_product_attention", "rms_norm", "softmax", "reshape"}
WAITS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)

_waits: list[str] = []


class MixedDevices(RuntimeError):
    """The error that CUDA raises as a `RuntimeError`."""


class StandInTensor(torch.Tensor):
    """A tensor of the device; `raw` has its values in the host's memory."""

    raw: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: Tensor) -> StandInTensor:
        # A view of a tensor from outside inference mode is not an inference tensor.
        is_inference = raw.is_inference()
        is_other_mode = is_inference != torch.is_inference_mode_enabled()
        with torch.inference_mode(is_inference) if is_other_mode else nullcontext():
            made = torch.Tensor._make_wrapper_subclass(
                cls,
                raw.shape,
                strides=raw.stride(),
                storage_offset=raw.storage_offset(),
                dtype=raw.dtype,
                device=DEVICE,
            )
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # In inference mode operations arrive whole; only their parts tell what they do.
        if _is_composite(func):
            return func.decompose(*args, **kwargs)
        return _run(func, args, kwargs)

    # torch reads these without an operation.

    def tolist(self) -> Any:
        _waits.append("tolist")
        return self.raw.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(f"can't convert {NAME} device type tensor to numpy: copy it first.")
        return self.cpu().numpy()

    def __array__(self, *args: Any) -> Any:
        return self.numpy()

    def data_ptr(self) -> int:
        return self.raw.data_ptr()

    def __repr__(self, **_: Any) -> str:
        return f"StandInTensor({self.raw!r})"


class StandInGenerator(torch.Generator):
    """A generator of the device, for `torch.Generator(device)`, which Python cannot register."""

    def __new__(cls, device: Any = "cpu") -> Any:
        made = super().__new__(cls)
        made.place = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:
        return DEVICE if self.place.type == NAME else self.place


@cache
def _is_composite(func: Any) -> bool:
    if func.overloadpacket.__name__ in WHOLE:
        return False
    name = func.name()
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `func` on the host's memory, with the rules of a GPU."""
    name = func.overloadpacket.__name__
    found: list[Tensor] = []
    raw_args = _raw(args, found)
    raw_kwargs = {k: _raw(v, found) for k, v in kwargs.items() if k != "pin_memory"}
    to_host = raw_kwargs.get("device", DEVICE).type != NAME
    if name == "copy_" and isinstance(args[1], StandInTensor):
        to_host = not isinstance(args[0], StandInTensor)
    if name not in COPIES:
        _same_device(func, found)
    if (name in COPIES and to_host) or _waits_for_values(func, name, args):
        _waits.append(name)
    if not to_host:
        raw_kwargs.pop("device", None)
    result = func(*raw_args, **raw_kwargs)
    return result if to_host else _shown(result, {id(t.raw): t for t in found if _ours(t)})


def _ours(t: Tensor) -> bool:
    return isinstance(t, StandInTensor)


def _raw(value: Any, found: list[Tensor]) -> Any:
    """Return `value` with the memory of its tensors, and add these to `found`."""
    if isinstance(value, Tensor):
        found.append(value)
        return value.raw if isinstance(value, StandInTensor) else value
    return [_raw(one, found) for one in value] if isinstance(value, (list, tuple)) else value


def _shown(value: Any, known: dict[int, StandInTensor]) -> Any:
    """Return `value` with tensors of the device; those changed in place are the `known` ones."""
    if isinstance(value, Tensor):
        ours = known.get(id(value))
        if ours is None:
            return StandInTensor(value)
        assert ours.shape == value.shape, "the stand-in cannot change a shape in place"
        return ours
    return [_shown(one, known) for one in value] if isinstance(value, (list, tuple)) else value


def _same_device(func: Any, tensors: list[Tensor]) -> None:
    # A single number of the host goes along with the kernel of an entry-wise operation.
    numbers = torch.Tag.pointwise in func.tags
    strangers = [t for t in tensors if not (_ours(t) or (numbers and t.dim() == 0))]
    if strangers and len(strangers) < len(tensors):
        raise MixedDevices(f"{func}: found tensors on {DEVICE} and on {strangers[0].device}")


def _waits_for_values(func: Any, name: str, args: tuple[Any, ...]) -> bool:
    """Check whether a value or a shape of the result depends on values."""
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
    return name == "multinomial" or any(tag in WAITS for tag in func.tags)


def _factory(op: Any) -> Callable[..., Tensor]:
    def made(*args: Any, **kwargs: Any) -> Tensor:
        kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"}
        return StandInTensor(op(*args, **{**kwargs, "device": "cpu"}))

    return made


def _copy_from(source: Tensor, target: StandInTensor, non_blocking: bool = False) -> Tensor:
    """The last step of `torch.tensor(values, device=...)`, which is never dispatched."""
    target.raw.copy_(source)
    return target


class _Hook(_DummyPrivateUse1Hook):
    """Tells torch that no other code should choose this device."""

    def is_available(self) -> bool:
        return False


class _Module:
    """The module `torch.standin` that torch expects."""

    def is_available(self) -> bool:
        return False

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass


def _register() -> torch.library.Library:
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module(), hook=_Hook())
    library = torch.library.Library("aten", "IMPL")
    for name in FACTORIES:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(aten, packet), overload or "default")
        library.impl(name, _factory(op), "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    return library


_library = _register()  # its kernels live as long as it does
DEVICE = torch.device(NAME, 0)


@contextmanager
def host_waits() -> Iterator[list[str]]:
    """Append to the list, inside the block, the names of operations that made the host wait."""
    before = len(_waits)
    found: list[str] = []
    try:
        yield found
    finally:
        found += _waits[before:]
        del _waits[before:]


def on_device(model: Any) -> Any:
    """Move the weights and buffers of `model` to the device; returns `model`."""
    moved: dict[int, nn.Parameter] = {}  # tied weights stay tied
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                place = weight.detach().to(DEVICE)
                known = moved.setdefault(id(weight), nn.Parameter(place, requires_grad=False))
                module._parameters[name] = known
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.to(DEVICE)
    return model


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device, with generators of its own."""
    rand = torch.rand

    def checked(*size: Any, generator: Any = None, device: Any = "cpu", **options: Any) -> Tensor:
        # The kernel is given a generator without its Python class.
        if generator is not None and generator.device.type != torch.device(device).type:
            raise MixedDevices(f"rand: the generator is on {generator.device}, not on {device}")
        return rand(*size, generator=generator, device=device, **options)

    monkeypatch.setattr(torch, "Generator", StandInGenerator)
    monkeypatch.setattr(torch, "rand", checked)
    return DEVICE
