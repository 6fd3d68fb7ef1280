"""Memory that several threads share, for code that numba compiles."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .ir import F32, I32, I64, i64


@intrinsic
def float_pointer(typing, address):
    """An address as a pointer to fp32 numbers, for `numba.carray`."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        return b.inttoptr(args[0], F32.as_pointer())

    return types.CPointer(types.float32)(types.int64), codegen


@intrinsic
def int_pointer(typing, address):
    """An address as a pointer to int64 numbers, for `numba.carray`."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        return b.inttoptr(args[0], I64.as_pointer())

    return types.CPointer(types.int64)(types.int64), codegen


@intrinsic
def arrive(typing, counter):
    """Add 1 to the int64 at this address, seen by all threads."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        place = b.inttoptr(args[0], I64.as_pointer())
        b.atomic_rmw("add", place, i64(1), "acq_rel")
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def yield_processor(typing):
    """Let another thread run, where the system has the call."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        if sys.platform != "win32":
            call = ir.FunctionType(I32, [])
            b.call(cgutils.get_or_insert_function(b.module, call, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def read_shared(typing, counter):
    """The int64 at this address, as the other threads left it."""

    def codegen(context: Any, b: ir.IRBuilder, signature: Any, args: Sequence[Any]) -> Any:
        place = b.inttoptr(args[0], I64.as_pointer())
        return b.load_atomic(place, "acquire", 8)

    return types.int64(types.int64), codegen
