"""What `subprocess.Popen([python, "-c", CODE, ...])` gives, from a process that has imported the
libraries: tests that lose many processes of models wait for none of them to import torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from multiprocessing import reduction
from typing import Any

from forked_page import PROCESSES


class ForkedProcess:
    """A process that runs the code of a command, with pipes as its stdin and stdout."""

    def __init__(self, command: Sequence[str], **_: Any) -> None:
        its_stdin, ours_to_write = os.pipe()
        ours_to_read, its_stdout = os.pipe()
        self.stdin, self.stdout = os.fdopen(ours_to_write, "wb"), os.fdopen(ours_to_read, "rb")
        pipes = _Inherited(its_stdin), _Inherited(its_stdout)
        values = ([*command[1:2], *command[3:]], command[2], *pipes, dict(os.environ))
        self._process = PROCESSES.Process(target=_run, args=values)
        self._process.start()
        os.close(its_stdin)
        os.close(its_stdout)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.join()


class _Inherited:
    """A file descriptor that goes to the new process; there, its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _number, (reduction.DupFd(self.number),)


def _number(duplicate: Any) -> int:
    number: int = duplicate.detach()
    return number


def _run(argv: list[str], code: str, stdin: int, stdout: int, variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.close(stdin)
    os.close(stdout)
    sys.argv = argv
    exec(code, {"__name__": "__main__"})
