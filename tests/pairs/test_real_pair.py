"""The published pair, if it was fetched: the same bits for any width and number of threads, the
text of transformers in fp32, the same text in both lanes, and the cost of loading.

The short tests run whenever the files are on the machine; `make real` fetches the pair and runs the
long ones too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fetched_pair import NAME, fetched_files
from places import ROOT
from toy_models import emitted_ids

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

import gguf
from gguf import GGMLQuantizationType
from transformers import AutoModelForCausalLM

from specviz import Pair, Settings, baseline, generate, load_pair
from specviz.core.engine_choice import make_engine
from specviz.core.header import model_name
from specviz.core.threads import use_threads
from specviz.files.few_bits.unpacking import unpacked
from specviz.files.gguf.header import read_gguf
from specviz.files.memory import shown_bytes
from specviz.pairs.doctor import examine

pytestmark = pytest.mark.real

long = pytest.mark.skipif(
    os.environ.get("REAL") != "all", reason="'make real' runs what takes many minutes"
)

TOKENS = 64  # tokens of a text
NEAR = 1e-3  # rounding may swap logits that differ by less

QUESTIONS = (
    "Write a Python function that says whether a word is a palindrome.",
    "Explain in two sentences what a hash table is.",
    "Write a SQL query that counts the orders of each customer.",
)
MORE_QUESTIONS = (
    "Write a function in JavaScript that removes duplicates from a list.",
    "Write a Rust function that sums a slice of integers.",
    "Write an HTML page with a table of three planets.",
    "Write a unit test for a function that adds two numbers.",
    "Write a regular expression for a date such as 2024-05-31.",
    "Write a shell command that finds the ten largest files.",
    "Write a C function that reverses a string in place.",
    "Write a Go function that reads a file line by line.",
    "Write a binary search in Java.",
    "Write a class for a stack in TypeScript.",
    "Refactor this: if x == True: return True\nelse: return False",
    "What does this print? print([i * i for i in range(5)])",
    "Find the bug: for i in range(len(a) + 1): print(a[i])",
    "Add type hints: def area(width, height): return width * height",
    "Translate to Python: int x = 3; while (x > 0) { x--; }",
    "Name three sorting algorithms and what they cost.",
    "What is the difference between a list and a tuple?",
    "Explain recursion to a child.",
    "Write a haiku about compilers.",
    "Tell a short story about a lighthouse.",
    "Schreibe einen Satz über den Winter.",
    "Écris une phrase sur la mer.",
    "写一个计算斐波那契数列的函数。",
    "Напиши функцию, которая считает гласные.",
    "Write CSS that centres a box.",
    "Write a Dockerfile for a Flask application.",
    "Write a JSON object that describes a book.",
)


@pytest.fixture(scope="module")
def files() -> tuple[Path, Path]:
    return fetched_files()


@pytest.fixture(scope="module")
def pair(files: tuple[Path, Path]) -> Iterator[Pair]:
    target, draft = files
    yield load_pair(f"{target}+{draft}", products="fp32")


@pytest.fixture(scope="module")
def integer_pair(files: tuple[Path, Path]) -> Iterator[Pair]:
    target, draft = files
    yield load_pair(f"{target}+{draft}", draft_quantize="4bit")


def test_its_files_hold_the_numbers_that_gguf_reads(files: tuple[Path, Path]) -> None:
    for path in files:
        header = read_gguf(path)
        kinds = set()
        for tensor in header.tensors.values():
            if tensor.kind in kinds or len(tensor.shape) < 2:
                continue
            kinds.add(tensor.kind)
            rows = min(64, tensor.shape[0])
            length = tensor.bytes // tensor.shape[0] * rows
            with path.open("rb") as file:
                file.seek(header.begin + tensor.start)
                data = torch.frombuffer(bytearray(file.read(length)), dtype=torch.uint8)
            blocks = data.view(rows, -1)
            known = gguf.quants.dequantize(blocks.numpy(), GGMLQuantizationType[tensor.kind])
            found = unpacked(blocks, tensor.kind, tensor.shape[1])
            assert torch.equal(found, torch.from_numpy(known)), tensor.kind
        assert "Q4_K" in kinds


def test_logits_keep_their_bits_for_any_width_and_threads(pair: Pair, integer_pair: Pair) -> None:
    ids = torch.tensor(pair.encode(QUESTIONS[0])[:21])
    for model in (pair.target, integer_pair.target, integer_pair.draft_model):
        runs = []
        for threads, widths in ((1, [1, 2, 3, 4, 5, 6]), (2, [6, 5, 4, 3, 2, 1]), (2, [1] * 21)):
            with use_threads(threads):
                engine = make_engine(model, pair.vocab)
            assert engine.name == "compiled" and engine.threads == threads
            runs.append(torch.cat([engine.forward(part, len(part)) for part in ids.split(widths)]))
        assert all(torch.equal(run, runs[0]) for run in runs)


def plain_weights(file: str) -> dict[str, Any]:
    """Options that make transformers unpack all weights, even where it would keep them packed."""
    try:
        from transformers.utils.quantization_config import GgufConfig
    except ImportError:  # before transformers 5.23, which always unpacks
        return {}
    return {"quantization_config": GgufConfig(gguf_file=file, dequantize=True)}


@pytest.fixture(scope="module")
def reference(files: tuple[Path, Path]) -> Any:
    """The target as transformers itself reads its file, without any code of specviz."""
    target, _ = files
    return AutoModelForCausalLM.from_pretrained(
        target.parent, gguf_file=target.name, dtype=torch.float32, **plain_weights(target.name)
    ).eval()


@torch.inference_mode()
def check_greedy(model: Any, pair: Pair, prompt: list[int], text: list[int]) -> None:
    """Check that each token of a text is the likeliest after its prefix, in one pass of
    transformers' modules in fp32. Then `generate()` writes the same text, token by token. At a
    near-tie it may write the other token."""
    whole = torch.tensor([[*prompt, *text]])
    states = model.model(whole).last_hidden_state[0, len(prompt) - 1 : -1]
    logits = model.lm_head(states)[:, : pair.vocab]
    written = logits.gather(-1, torch.tensor(text)[:, None])[:, 0]
    short = logits.max(-1).values - written
    place = int(short.argmax())
    if short[place] > 0:
        print(f"the likeliest two differ by {short[place]:.1e} at token {place}")
    assert short[place] <= NEAR, pair.tokenizer.decode(text[: place + 1])


def checked_text(pair: Pair, question: str) -> list[int]:
    """Check that both lanes write the same text, and return it."""
    drafted = generate(pair, question, max_new_tokens=TOKENS)
    alone = emitted_ids(baseline(pair, question, Settings(max_new_tokens=TOKENS)))
    assert emitted_ids(drafted.rounds) == alone
    assert any(len(each.emitted) > 2 for each in drafted.rounds)
    return alone


@pytest.mark.parametrize("question", QUESTIONS[:2])
def test_greedy_texts_are_those_of_transformers_in_both_lanes(pair: Pair, question: str) -> None:
    assert pair.is_chat and pair.shared is None and model_name(pair.target).startswith("Qwen2.5")
    check_greedy(pair.target, pair, pair.encode(question), checked_text(pair, question))


@pytest.mark.parametrize("question", QUESTIONS[:2])
def test_integer_products_write_one_text_in_both_lanes(integer_pair: Pair, question: str) -> None:
    checked_text(integer_pair, question)


def test_the_doctor_counts_a_target_in_the_form_that_its_row_loads(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_MODELS", str(files[0].parent))
    needs = {}
    for name in (NAME, f"{NAME}-bf16"):
        findings = {each.topic: each.sentence for each in examine(name).findings}
        needs[name] = findings["memory"]
    assert "Qwen2.5-Coder-1.5B-Instruct 1.6 GB as stored, inputs in 8 bits" in needs[NAME]
    assert "Qwen2.5-Coder-1.5B-Instruct 3.3 GB as bfloat16" in needs[f"{NAME}-bf16"]
    assert all("0.5B-Instruct 522.7 MB as 4bit" in said for said in needs.values())


@long
@pytest.mark.parametrize("question", (*QUESTIONS, *MORE_QUESTIONS))
def test_thirty_greedy_texts_are_those_of_transformers_in_both_lanes(
    pair: Pair, reference: Any, question: str
) -> None:
    check_greedy(reference, pair, pair.encode(question), checked_text(pair, question))


@long
@pytest.mark.parametrize("question", QUESTIONS)
def test_generate_of_transformers_writes_the_same(
    pair: Pair, reference: Any, question: str
) -> None:
    ids = torch.tensor([pair.encode(question)])
    out = reference.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        repetition_penalty=1.0,
        max_new_tokens=TOKENS,
        eos_token_id=sorted(pair.eos_ids),
        pad_token_id=0,
    )
    assert checked_text(pair, question) == out[0, ids.shape[1] :].tolist()


LOADING = """
import sys, time
from pathlib import Path
from specviz import load_pair, speculate

def peak_memory():
    # Not getrusage: a process begins there with what the one that started it had.
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

before = peak_memory()
begin = time.monotonic()
pair = load_pair(sys.argv[1])
loaded = time.monotonic()
next(iter(speculate(pair, "Hello", max_new_tokens=16)))
first = time.monotonic()
print(loaded - begin, first - begin, peak_memory() - before)
"""
MOST = 1.35  # times the bytes of both files, without caches
CACHES = 300e6  # bytes, including memory that libraries need for a first run


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read as Linux tells it")
def test_loading_takes_little_more_memory_than_the_files(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    target, draft = files
    command = [sys.executable, "-c", LOADING, f"{target}+{draft}"]
    # With a user's default number of threads.
    single = ("OMP_NUM_THREADS", "SPECVIZ_THREADS")
    env = {name: value for name, value in os.environ.items() if name not in single}
    run = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    loaded, first, grown = map(float, run.stdout.split())
    stored = sum(path.stat().st_size for path in files)
    with capsys.disabled():
        print("\n\n| the published pair | |\n|---|---|")
        print(f"| files | {shown_bytes(stored)} |")
        print(f"| loaded after | {loaded:.1f} s |")
        print(f"| first tokens after | {first:.1f} s |")
        print(f"| memory | {shown_bytes(int(grown))}, {grown / stored:.2f} times the files |")
    assert 0.5 * stored < grown <= MOST * stored + CACHES
