"""Replacements of `subprocess.Popen([python, "-c", CODE, ...])` and `subprocess.run` that fork a
process with imported libraries, so that no test waits for these imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from operator import index
from tempfile import TemporaryFile
from typing import Any, SupportsIndex

from forked_page import PROCESSES, SECONDS, address_of_forks, become


class ForkedProcess:
    """A process that runs the code of a command, with pipes as its stdin and stdout. env: its
    variables; by default those of this process."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, **_: Any
    ) -> None:
        its_stdin, ours_to_write = os.pipe()
        ours_to_read, its_stdout = os.pipe()
        self.stdin = os.fdopen(ours_to_write, "wb")
        self.stdout = os.fdopen(ours_to_read, "rb")
        self._process = _started(command, env or os.environ, its_stdin, its_stdout)
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

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended, for at most `timeout` seconds."""
        self._process.join(timeout)


def begin_worker(master: Any, command: Sequence[str], execmodel: Any) -> None:
    """Start a process that runs tests; replaces `execnet.gateway_io.Popen2IOMaster.__init__`."""
    from execnet.gateway_base import Popen2IO

    *python, option, code = command
    assert option == "-c"
    master.popen = ForkedProcess([python[0], option, code])
    Popen2IO.__init__(master, master.popen.stdin, master.popen.stdout, execmodel)


def run_forked(
    command: Sequence[str], env: Mapping[str, str] | None = None, seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run the code of a command to its end, for at most `seconds`; return its status and output."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err, open(os.devnull) as nothing:
        files = (one.fileno() for one in (nothing, out, err))
        process = _started(command, env or os.environ, *files)
        process.join(seconds)
        assert process.exitcode is not None, "it does not end"
        for one in (out, err):
            one.seek(0)
        return subprocess.CompletedProcess(command, process.exitcode, out.read(), err.read())


def _started(command: Sequence[str], env: Mapping[str, str], *files: int) -> Any:
    """Start a process with these files as its stdin, stdout and perhaps stderr."""
    argv = [*command[1:2], *command[3:]]
    given = [_Inherited(one) for one in files]
    process = PROCESSES.Process(
        target=_run, args=(argv, command[2], given, dict(env), address_of_forks())
    )
    process.start()
    return process


class _Inherited:
    """A file descriptor that is passed to the new process, and arrives there as a number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _number, (reduction.DupFd(self.number),)

    def __index__(self) -> int:
        return self.number  # a child of this very process inherits the descriptor itself


def _number(duplicate: Any) -> int:
    number: int = duplicate.detach()
    return number


def _run(
    argv: list[str], code: str, files: list[SupportsIndex], variables: dict[str, str], forks: str
) -> None:
    become(variables, forks)
    for place, file in enumerate(files):
        number = index(file)
        os.dup2(number, place)
        os.close(number)
    sys.stdin = os.fdopen(0, closefd=False)  # a forked process has none
    sys.argv = argv
    exec(code, {"__name__": "__main__"})
