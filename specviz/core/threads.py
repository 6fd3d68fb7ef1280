"""How many threads compute: torch's, and those of compiled passes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from ..base.environment import THREADS

_used: ContextVar[int | None] = ContextVar("threads", default=None)
_left_to_the_page = 0  # processors


def spare_threads() -> int:
    """Let torch use half of the processors, or SPECVIZ_THREADS of them; returns how many.
    Raises `SettingsError`. Compiled passes have threads of their own: see `used_threads`.

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
    """From now on no pass takes all processors: the page's server and browser need one."""
    global _left_to_the_page
    _left_to_the_page = 1


def most_threads() -> int:
    """The most threads that a pass may take. Raises `SettingsError`."""
    return THREADS.read() or max(1, processors() - _left_to_the_page)


def used_processors() -> int:
    """The threads of passes that every processor helps: SPECVIZ_THREADS, else as many as there are
    processors. Raises `SettingsError`."""
    return _used.get() or THREADS.read() or processors()


def thread_counts() -> list[int]:
    """The numbers of threads to choose from: powers of two, and the most. Only SPECVIZ_THREADS if
    that is set. Raises `SettingsError`."""
    fixed = _used.get() or THREADS.read()
    if fixed:
        return [fixed]
    most = most_threads()
    powers_of_two = [2**i for i in range(most.bit_length()) if 2**i < most]
    return [*powers_of_two, most]


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Engines that are made within share their passes among so many threads at most."""
    token = _used.set(count)
    try:
        yield
    finally:
        _used.reset(token)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Within, torch computes in the calling thread alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def used_threads() -> int:
    """How many threads an engine that is made here and now may use."""
    return _used.get() or most_threads()
