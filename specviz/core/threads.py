"""Choose the numbers of threads: of torch, and of compiled passes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from ..base.environment import THREADS

_limit: ContextVar[int | None] = ContextVar("threads", default=None)
_left_to_the_page = 0  # processors


def limit_torch_threads() -> int:
    """Let torch use half of the processors, or SPECVIZ_THREADS of them; returns how many.
    Raises `SettingsError`. Compiled passes have threads of their own: see `thread_limit`.

    A short pass waits for its slowest thread, so a thread that shares its processor with the
    browser or the server delays all others.
    """
    torch.set_num_threads(THREADS.read() or max(1, (os.cpu_count() or 2) // 2))
    return torch.get_num_threads()


def processors() -> int:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def leave_one_to_the_page() -> None:
    """Reserve a processor from now on: the page's server and browser need one."""
    global _left_to_the_page
    _left_to_the_page = 1


def thread_limit() -> int:
    """The most threads that an engine made now may use: the limit of `use_threads`, else
    SPECVIZ_THREADS, else a thread for each processor that is not left to the page. Raises
    `SettingsError`."""
    return _limit.get() or THREADS.read() or max(1, processors() - _left_to_the_page)


def all_threads() -> int:
    """The same limit, but with a thread for the page's processor too: for large models, and for
    weights that are read or packed. Raises `SettingsError`."""
    return _limit.get() or THREADS.read() or processors()


def thread_counts() -> list[int]:
    """The numbers of threads to choose from: powers of two and the maximum, or SPECVIZ_THREADS
    alone if it is set. Raises `SettingsError`."""
    fixed = _limit.get() or THREADS.read()
    if fixed:
        return [fixed]
    maximum = thread_limit()
    powers_of_two = [2**i for i in range(maximum.bit_length()) if 2**i < maximum]
    return [*powers_of_two, maximum]


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Context manager: let engines made within it use at most `count` threads."""
    token = _limit.set(count)
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Context manager: let torch compute in the calling thread alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
