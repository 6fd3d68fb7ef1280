"""The comparison with llama.cpp: what its programs print is read, and each is taken at its best."""

from __future__ import annotations

import json
import os
import shlex
from functools import partial
from pathlib import Path

import pytest
from toy_models import byte_level, llama, pair_of, relative

from specviz import Pair, Settings
from specviz.bench import rival
from specviz.bench.llama_cpp import ALONE, SPECULATIVE, LlamaCpp, bench_rates, speculative_rate
from specviz.bench.rival import HERE, Comparison, Way, compare_with_llama_cpp
from specviz.bench.rival_table import rival_report
from specviz.engines.choose import eager_only
from specviz.errors import SpecvizError

pytest.importorskip("gguf", reason="it is only needed for comparisons with llama.cpp")

SAMPLES = Path(__file__).parent / "llama_cpp"
SETTINGS = Settings(max_new_tokens=8, gamma=4)

# Stands in for both programs: prints what they do, as fast as it is told by the weights' type, the
# number of threads and of drafts.
STAND_IN = r"""#!/bin/sh
while [ $# -gt 0 ]; do
    case "$1" in
        -m) files="$files $2" ;;
        -md) draft=$2 ;;
        -t) wide=$2 ;;
        -td) narrow=$2 ;;
        -p) prompt=$2 ;;
        --spec-draft-n-max) gamma=$2 ;;
    esac
    shift
done
if [ "$draft" ]; then
    printf '\n\n%s%s' "$prompt" TEXT
    rate=$((100 * wide - 10 * narrow + gamma)).5
    echo "decoded    9 tokens in    0.100 seconds, speed:  $rate t/s" >&2
    exit
fi
before=[
for file in $files; do
    case "$file" in *bf16*) more=1 ;; *) more=0 ;; esac
    for n in $(echo "$wide" | tr , ' '); do
        rate=$((50 * n + more))
        printf '%s{"model_filename": "%s", "n_threads": %s, "samples_ts": [%s]}' \
            "$before" "$file" "$n" "$rate"
        before=,
    done
done
echo ]
"""


@pytest.fixture(scope="module")
def pair() -> Pair:
    target = llama(300, initializer_range=0.1)
    return pair_of(target, relative(target, noise=0.1), tokenizer=byte_level())


def programs(folder: Path, script: str) -> Path:
    for name in (ALONE, SPECULATIVE):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return folder


def test_what_the_programs_print_is_read() -> None:
    rates = bench_rates((SAMPLES / "llama-bench.json").read_text())
    assert [(Path(file).name, threads) for file, threads, _ in rates] == [
        ("target-bf16.gguf", 1),
        ("target-bf16.gguf", 2),
        ("target-fp32.gguf", 1),
        ("target-fp32.gguf", 2),
    ]
    assert speculative_rate((SAMPLES / "speculative-simple.log").read_text()) == 126.614
    assert rates[0][2] == 132.8
    assert speculative_rate("0.00.265.997 I cmn          init: llama threadpool init") is None
    with pytest.raises(SpecvizError, match="printed no results"):
        bench_rates("error: unknown argument")


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a script with a first line")
def test_every_way_takes_its_turn_and_the_best_are_compared(
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(rival, "thread_counts", lambda: [1, 2])
    prompts, file = ["the cat", "don't"], tmp_path / "found.json"
    settings = Settings(max_new_tokens=8, gamma=4, ignore_eos=True)
    with eager_only():  # nothing to compile
        _, tokens = rival.own_run(pair, prompts[0], settings, Way(HERE, "baseline", 1, 0))
        folder = programs(tmp_path, STAND_IN.replace("TEXT", shlex.quote("".join(tokens))))
        compare = partial(compare_with_llama_cpp, folder, pair, prompts, SETTINGS, 1)
        rival_report(compare, prompts, SETTINGS, 1, file)
    result = json.loads(file.read_text())
    names = ("who", "lane", "threads", "gamma", "draft_threads")
    rates = {tuple(row[name] for name in names): row for row in result["rows"]}
    theirs = {key: row["median"] for key, row in rates.items() if key[0] != HERE}
    assert theirs == {
        (f"llama.cpp {kind}", lane, threads, gamma, told): rate
        for kind in ("bf16", "fp32")
        for lane, threads, gamma, told, rate in [
            *(("baseline", n, 0, None, 50 * n + (kind == "bf16")) for n in (1, 2)),
            *(
                ("speculative", n, g, told, base + g + 0.5)
                for n, told, base in ((1, None, 90), (2, None, 180), (2, 1, 190))
                for g in (2, 3, 4)
            ),
        ]
    }
    assert len(rates) == len(theirs) + 4 and all(row["median"] > 0 for row in rates.values())
    assert result["same_texts"] == {"llama.cpp bf16": 1, "llama.cpp fp32": 1}
    best = capsys.readouterr().out.partition("best against best")[2].splitlines()
    assert best[2].endswith("target alone, llama.cpp bf16, 2 threads")
    assert best[3].endswith(
        "draft + target, llama.cpp bf16, 2 threads (1 for the draft), drafts of 4"
    )


def test_a_ratio_compares_samples_of_the_same_turn() -> None:
    ways = Way(HERE, "baseline", 1, 0), Way("llama.cpp bf16", "baseline", 1, 0)
    found = Comparison({ways[0]: [10.0, 100.0, 30.0], ways[1]: [5.0, 50.0, 10.0]}, {}, 3)
    assert found.ratio(*ways).median == 2.0 and found.best([HERE]) == ways[0]


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a script with a first line")
def test_a_missing_or_failing_program_is_one_sentence(pair: Pair, tmp_path: Path) -> None:
    def run(folder: Path) -> None:
        compare_with_llama_cpp(folder, pair, ["the cat"], SETTINGS, 1)

    with pytest.raises(SpecvizError, match="there is no folder"):
        run(tmp_path / "nowhere")
    with pytest.raises(SpecvizError, match="has no program llama-bench: build it"):
        run(tmp_path)
    failing = LlamaCpp(
        programs(tmp_path, "#!/bin/sh\necho loading >&2\necho no memory >&2\nexit 3\n"),
        pair,
        ["the cat"],
        tmp_path,
    )
    with pytest.raises(SpecvizError, match=r"llama-bench failed with code 3: no memory"):
        list(failing.alone(4, 8, [1]))
    programs(tmp_path, "#!/bin/sh\nexit 0\n")
    with pytest.raises(SpecvizError, match="llama-speculative-simple printed no speed"):
        failing.speculative("bf16", "the cat", 8, (1, 1), 2)
    programs(tmp_path, "not a program")
    with pytest.raises(SpecvizError, match="llama-bench does not run here"):
        list(failing.alone(4, 8, [1]))
    with pytest.raises(SpecvizError, match="compares a target and a draft on a processor"):
        compare_with_llama_cpp(tmp_path, pair_of(pair.target), ["the cat"], SETTINGS, 1)
