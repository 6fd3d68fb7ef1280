"""The measurements of a visit to a GPU, step by step, with random weights of well-known sizes.

Each step runs in its own process and sends every figure as soon as it has it, so that an
interrupted step keeps its figures so far. Times are the device's own. On a processor the same code
runs without captures, for its tests.
"""

from __future__ import annotations

import gc
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import torch
from transformers import LlamaConfig

from specviz.base.environment import KERNELS
from specviz.core.clock import now
from specviz.core.engine_choice import make_engine
from specviz.core.lanes import SPECULATIVE
from specviz.core.loop import LaneOptions, start_lane
from specviz.core.model_facts import pass_bytes
from specviz.core.pair import Pair
from specviz.core.paths import make_context
from specviz.core.policy import speedup_at
from specviz.core.settings import Settings
from specviz.core.types import Draft
from specviz.files.devices import best_device
from specviz.inspect.prove import prove
from specviz.inspect.random_models import numbers, random_model, scripted
from specviz.inspect.shapes import Shape
from specviz.measure.bench.kernels import kernels_by_role
from specviz.measure.bench.lanes import measured
from specviz.sides.fast_gpu import engine as static
from specviz.sides.fast_gpu.cache import Program
from specviz.sides.fast_gpu.rounds import Mark, step_by_step
from specviz.sides.fast_gpu.triton_support import TRITON_FORM

ROOT = Path(__file__).resolve().parent.parent
PROMPT = 64  # tokens before what is measured
CHAIN = 500  # kernels that compute almost nothing
ROWS = 16  # the most tokens of a pass whose bits are compared
VLLM = """
import sys, time
from vllm import LLM, SamplingParams
folder, tokens = sys.argv[1], int(sys.argv[2])
llm = LLM(folder, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16",
          max_model_len=1024, max_num_seqs=1, gpu_memory_utilization=0.6)
prompt = [{"prompt_token_ids": list(range(1, 65))}]
options = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
llm.generate(prompt, options)
began = time.perf_counter()
llm.generate(prompt, options)
print("tokens/s", tokens / (time.perf_counter() - began))
"""

Report: TypeAlias = Callable[[str, Any], None]
"""Takes a figure, by name, that can be written as JSON."""


@dataclass(frozen=True)
class Visit:
    """The size of the measurements: repeats of each pass, tokens of each text, texts that `prove`
    draws, bytes that are copied, and the most drafts of a round."""

    repeats: int = 20
    tokens: int = 96
    proofs: int = 800
    copied: int = 4 << 30
    gamma: int = 5


def machine(report: Report, visit: Visit) -> None:
    """The installed software, and the speed of memory."""
    device = best_device()
    report("device", device.type)
    if device.type == "cuda":
        report("gpu", torch.cuda.get_device_name())
        report("capability", list(torch.cuda.get_device_capability()))
    report("python", platform.python_version())
    for name in ("torch", "triton", "transformers", "vllm"):
        report(name, _version(name))
    report("cuda", torch.version.cuda)
    # Triton's requirements for launching its first kernel.
    report("compiler", shutil.which("cc") or shutil.which("gcc"))
    headers = Path(sysconfig.get_path("include"))
    report("python_headers", (headers / "Python.h").is_file())
    report("copy_bytes_per_second", copy_rate(device, visit.copied))
    ones = torch.ones(4, device=device)
    report("captures", Program(lambda x: (x + 1,), [ones]).graphed)


def _version(name: str) -> str | None:
    if find_spec(name) is None:
        return None
    return version(name)


def copy_rate(device: torch.device, size: int) -> float:
    """Bytes a second of a copy within the device, those read and those written."""
    source = torch.ones(size // 8, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    seconds = seconds_of(lambda: target.copy_(source), device, 5)
    return 2 * source.nbytes / seconds


def launches(report: Report, visit: Visit) -> None:
    """The time of a kernel that computes almost nothing, one after another within a graph."""
    device = best_device()
    x = torch.zeros(1, device=device)

    def chain(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for _ in range(CHAIN):
            x = x + 1
        return (x,)

    program = Program(chain, [x])
    seconds = seconds_of(lambda: program(x), device, visit.repeats)
    report("microseconds_of_a_kernel", 1e6 * seconds / CHAIN)


def bits(report: Report, visit: Visit, shape: Shape) -> None:
    """Whether the logits of a token have the same bits in passes of 1 to 16 tokens, in each row of
    a pass, in longer buffers, and when they are computed again."""
    device = best_device()
    model = random_model(shape.draft, device)
    vocab = shape.vocab
    ids = _ids(PROMPT + ROWS, vocab)
    for kernels in kernel_forms(report, vocab, model):
        figures: dict[str, Any] = {}
        engine = make_engine(model, vocab)
        engine.forward(torch.tensor(ids[:PROMPT], device=device), keep=1)
        whole = _logits(engine, ids, PROMPT, ROWS)
        again = _logits(engine, ids, PROMPT, ROWS)
        figures["again"] = torch.equal(whole, again)
        same_widths = 0
        largest_difference = 0.0
        for width in range(1, ROWS):
            logits = _logits(engine, ids, PROMPT, width)
            same_widths += torch.equal(logits, whole[:width])
            difference = (logits - whole[:width]).abs().max()
            largest_difference = max(largest_difference, float(difference))
        figures["widths_equal"] = same_widths
        figures["widths"] = ROWS - 1
        figures["largest_difference"] = largest_difference
        # The last token in another row of its pass: those before it were fed before.
        _logits(engine, ids, PROMPT, ROWS)
        same_rows = 0
        for first in range(1, ROWS):
            logits = _logits(engine, ids, PROMPT + first, ROWS - first)
            same_rows += torch.equal(logits[-1], whole[-1])
        figures["rows_equal"] = same_rows
        if isinstance(engine, static.StaticEngine):
            engine.reserve(4 * PROMPT + 1024)
            in_longer_buffers = _logits(engine, ids, PROMPT, ROWS)
            figures["in_longer_buffers"] = torch.equal(whole, in_longer_buffers)
        report(kernels, figures)


@torch.inference_mode()
def _logits(engine: Any, ids: Sequence[int], begin: int, width: int) -> torch.Tensor:
    """Of a pass over `width` tokens of the text from `begin` on."""
    engine.rollback(begin)
    feed = torch.tensor(ids[begin : begin + width], device=engine.device)
    logits: torch.Tensor = engine.forward(feed, keep=width)
    return logits


def pair_speeds(report: Report, visit: Visit, shape: Shape, acceptance: float) -> None:
    """Everything about one pair: floors, passes, kernels, rounds, lanes beside `generate()`."""
    device = best_device()
    rate = copy_rate(device, visit.copied)
    target = random_model(shape.target, device)
    draft = random_model(shape.draft, device)
    pair = Pair(target=target, draft=draft, tokenizer=numbers(shape.vocab), name="random")
    report("acceptance", acceptance)
    report("target_floor_seconds", pass_bytes(target) / rate)
    report("draft_floor_seconds", pass_bytes(draft) / rate)
    for kernels in kernel_forms(report, pair.vocab, target, draft):

        def report_form(name: str, value: Any, kernels: str = kernels) -> None:
            report(f"{kernels}: {name}", value)

        speeds = _Speeds(pair, visit, acceptance, report_form)
        speeds.passes()
        speeds.rounds()
        speeds.lanes()


def kernel_forms(report: Report, vocab: int, *models: Any) -> Iterator[str]:
    """ "torch", and "triton" where its kernels compute the short passes of the first model; within
    each, new engines are of that form."""
    for kernels in ("torch", "triton"):
        os.environ[KERNELS.name] = kernels
        static._pools.clear()
        gc.collect()
        for model in models:
            make_engine(model, vocab)
            compilation = getattr(static._pools.get(model), "compilation", None)
            if compilation is not None:
                compilation.wait()
        form = make_engine(models[0], vocab).name
        if kernels == "triton" and not form.endswith(TRITON_FORM):
            report("without Triton's kernels", form)
            return
        yield kernels


class _Speeds:
    """The measurements of a pair in one form."""

    def __init__(self, pair: Pair, visit: Visit, acceptance: float, report: Report) -> None:
        self._pair = pair
        self._visit = visit
        self._acceptance = acceptance
        self._report = report
        self._ids = _ids(PROMPT, pair.vocab)
        self._gamma = 1

    @torch.inference_mode()
    def passes(self) -> None:
        """Passes of the target by their tokens, draft steps, the best gamma by these."""
        gamma = self._visit.gamma
        settings = Settings(gamma=gamma)
        run = make_context(settings, self._pair.vocab, self._pair.device, None, SPECULATIVE)
        repeats = self._visit.repeats

        target = make_engine(self._pair.target, self._pair.vocab)
        self._report("form", target.name)
        path: Any = target.path(run)
        self._feed(target)
        judge = getattr(path, "launch", path.judge)  # without the copy to the host, if it can
        widths = {}
        for width in range(1, gamma + 2):
            draft: Draft | None = None
            if width > 1:
                draft = Draft.certain(self._ids[: width - 1], run)

            def one_pass(draft: Draft | None = draft) -> None:
                target.rollback(PROMPT - 1)
                judge(self._ids, draft)

            widths[width] = seconds_of(one_pass, self._pair.device, repeats)
        self._report("pass_seconds", widths)

        drafter = make_engine(self._pair.draft_model, self._pair.vocab)
        drafts = drafter.path(run)
        self._feed(drafter)

        def one_draft() -> None:
            drafter.rollback(PROMPT - 1)
            drafts.draft(self._ids, gamma)

        step = seconds_of(one_draft, self._pair.device, repeats) / gamma
        self._report("step_seconds", step)

        def speedup(gamma: int) -> float:
            return speedup_at(
                self._acceptance, gamma, step=step, one=widths[1], wide=widths[gamma + 1]
            )

        self._gamma = max(range(1, gamma + 1), key=speedup)
        self._report("gamma", self._gamma)
        self._report("kernels", kernels_by_role(self._pair, settings))

    def rounds(self) -> None:
        """A round with the host in each step, as one program, and with the next one enqueued."""
        settings = Settings(gamma=self._gamma, max_new_tokens=self._visit.tokens, ignore_eos=True)
        forms: dict[str, tuple[AbstractContextManager[None], bool]] = {
            "step by step": (step_by_step(), False),
            "one program": (nullcontext(), False),
            "the next one enqueued": (nullcontext(), True),
        }
        for name, (context, is_ahead) in forms.items():
            with context:
                figures = [self._round_figures(settings, is_ahead) for _ in range(2)]
            self._report(name, figures[-1])  # the first one warms up

    def _round_figures(self, settings: Settings, is_ahead: bool) -> dict[str, float]:
        options = LaneOptions(scripted_rule=scripted(self._acceptance))
        run = start_lane(self._pair, self._ids, settings, SPECULATIVE, options)
        run.prefill()
        if not is_ahead:
            run._is_followed = lambda gamma: False  # type: ignore[method-assign]
        began = now(self._pair.device)
        while run.ended is None:
            run.round()
        seconds = now(self._pair.device) - began
        return {
            "milliseconds_of_a_round": 1e3 * run.clock / run.index,
            "milliseconds_between_rounds": 1e3 * (seconds - run.clock) / run.index,
        }

    def lanes(self) -> None:
        """Tokens a second of the lanes and of transformers' `generate()`."""
        settings = Settings(gamma=self._gamma, max_new_tokens=self._visit.tokens, ignore_eos=True)
        prompt = " ".join(map(str, self._ids))
        rows, _, _ = measured(
            self._pair,
            [prompt],
            settings,
            1,
            with_generate=True,
            scripted_rule=scripted(self._acceptance),
        )
        rates = rows[0].tokens_per_second
        medians = {name: rate.median for name, rate in rates.items()}
        self._report("tokens_per_second", medians)

    def _feed(self, engine: Any) -> None:
        feed = torch.tensor(self._ids[:-1], device=engine.device)
        engine.forward(feed, keep=1)


def proof(report: Report, visit: Visit) -> None:
    """Chi-square tests of texts that the device draws."""
    for name in ("model", "early-exit", "block"):
        proof = prove(name, visit.proofs, best_device())
        report(name, {"p_value": proof.p_value, "kept": proof.kept, "runs": proof.runs})


def cuda_tests(report: Report, visit: Visit) -> None:
    """The tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "tests/engines/test_cuda.py", "-m", "cuda", "-q"]
    command += ["-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout[-4000:], done.stderr[-2000:])
    lines = done.stdout.strip().splitlines() or ["nothing was printed"]
    report("summary", lines[-1])
    if done.returncode:
        raise SystemExit(done.returncode)


def vllm_speed(report: Report, visit: Visit, shape: Shape) -> None:
    """Tokens a second of vLLM for the target's sizes, alone, with random weights."""
    folder = ROOT / "build" / "gpu" / "vllm"
    config = LlamaConfig(
        **shape.target._asdict(), max_position_embeddings=2048, architectures=["LlamaForCausalLM"]
    )
    config.save_pretrained(folder)
    command = [sys.executable, "-c", VLLM, str(folder), str(visit.tokens)]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout[-2000:], done.stderr[-4000:])
    rates = [line for line in done.stdout.splitlines() if line.startswith("tokens/s")]
    if not rates:
        raise SystemExit("vLLM printed no rate")
    _, rate = rates[-1].split()
    report("tokens_per_second", float(rate))


def seconds_of(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The device's seconds for one of `repeats` consecutive calls."""
    run()
    run()
    begun = Mark(device)
    done = Mark(device)
    begun.set()
    for _ in range(repeats):
        run()
    done.set()
    done.wait()
    return begun.seconds_until(done) / repeats


def _ids(count: int, vocab: int) -> list[int]:
    return [(7 * index + 1) % vocab for index in range(count)]
