"""All lanes on one device, each with its own clock."""

from __future__ import annotations

import platform
from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
import transformers

from .._version import __version__
from ..errors import PairError, ServerError, SettingsError
from ..lanes import SPECULATIVE, Several, checked_lanes
from ..models.pair import Pair, context_length, parameter_count
from ..models.truncated import truncated_model
from ..models.watched import Watched
from ..remote.target import RemoteTarget
from ..remote.watched.watching import watch
from ..settings import Settings
from ..trace import (
    BASELINE,
    STREAMED,
    Agreement,
    Divergence,
    End,
    EndReason,
    Event,
    Header,
    Lane,
    Round,
    margin_of,
)
from .loop import decode
from .memory import EarlierTexts, Memory, described, memory_ids
from .sampling import Decide
from .types import LaneEvents, Prefilled, Prompt

Mode: TypeAlias = Literal["interleaved", "sequential"]
Reasons: TypeAlias = dict[str, EndReason]

WARM_ROUNDS = 3  # per lane; allocators, thread pools and kernels settle within two


def race(
    pair: Pair,
    prompt: Prompt,
    settings: Settings | Several | None = None,
    *,
    mode: Mode = "interleaved",
    decider: Decide | None = None,
    memory: Memory = (),
) -> Iterator[Event]:
    """Race the target alone against the same target with drafts.

    Without settings they are those of `Pair.settings`. With one `Settings` the lanes are
    "speculative" and "baseline". With several, by the names of their lanes or in a sequence (names
    are then made of what differs), each has a lane beside the baseline; they may differ only in how
    they draft (`lanes.SHARED` lists what must be equal).

    Yields a `Header`, then the `Round`s of all lanes, then an `End`. In mode "interleaved", the
    lane whose clock is behind runs next and rounds come in clock order; in mode "sequential", one
    lane runs after the other. All lanes are warmed up first; prefill is in the header, apart from
    the clocks. `decider` replaces the verdict of the settings in benchmarks of speed.
    memory: earlier texts, as text or ids, that the drafter "suffix" may draft from. They are read
    before the clocks begin; the header says how many.
    A pair that is only watched (`models.watched`) has the lane of its server's stream, and a
    baseline if it has a second server; `remote.watched.watching` says what differs.
    Raises `SpecvizError` subclasses. Closing the generator stops all lanes within a round; so
    does sending it True after a round, which yields the `End`.
    """
    lanes = checked_lanes(pair.settings() if settings is None else settings)
    if isinstance(pair, Watched):
        if set(lanes) != {SPECULATIVE} or memory:
            raise SettingsError("a watched server has one lane with drafts: leave out the others.")
        return watch(pair.stream, pair.alone, prompt, lanes[SPECULATIVE])
    if mode not in ("interleaved", "sequential"):
        raise SettingsError(f"mode is {mode!r}: use 'interleaved' or 'sequential'.")
    first = next(iter(lanes.values()))
    prompt_ids = pair.encode(prompt, chat=first.chat)
    texts = memory_ids(pair, memory, lanes.values())
    return _race(pair, prompt_ids, {**lanes, BASELINE: first}, mode, decider, texts)


def _race(
    pair: Pair,
    prompt_ids: list[int],
    settings: dict[Lane, Settings],
    mode: Mode,
    decider: Decide | None,
    memory: EarlierTexts,
) -> Generator[Event, bool | None, None]:
    """settings: of all lanes, the baseline last."""
    # All lanes run the target in one form, or their clocks could not be compared.
    states = any(own.drafter == "head" for own in settings.values())
    for lane, own in settings.items():
        _warm_up(pair, prompt_ids, own, lane, states)
    lanes = {
        lane: decode(pair, prompt_ids, own, lane, decider, memory, states=states)
        for lane, own in settings.items()
    }
    try:
        prefilled = {lane: _prefilled(events) for lane, events in lanes.items()}
        header = _header(pair, prompt_ids, settings, mode, prefilled)
        if (yield replace(header, memory=described(memory))):
            yield End(dict.fromkeys(lanes, "stopped"))
            return
        emitted: dict[str, list[Round]] = {lane: [] for lane in lanes}
        reasons: Reasons = {}
        in_turn = _interleaved if mode == "interleaved" else _one_by_one
        for result in in_turn(lanes, reasons):
            emitted[result.lane].append(result)
            if (yield result):
                _stop(result.lane, lanes, reasons)
                break
        yield _end(emitted, reasons, settings)
    finally:
        for events in lanes.values():
            events.close()


def _warm_up(
    pair: Pair, prompt_ids: list[int], settings: Settings, lane: Lane, states: bool
) -> None:
    # A short prompt is enough, and leaves room in the context. It repeats itself, so that n-grams
    # are found and passes of several tokens are warmed up too.
    few = replace(settings, max_new_tokens=WARM_ROUNDS * (settings.gamma + 1), stop=())
    short = (2 * prompt_ids[:8])[: context_length(pair.target)]
    events = decode(pair, short, few, lane, states=states)
    for _ in islice(events, 1 + WARM_ROUNDS):
        pass
    events.close()


def _prefilled(events: LaneEvents) -> Prefilled:
    first = next(events)
    assert isinstance(first, Prefilled)
    return first


def _interleaved(lanes: dict[Lane, LaneEvents], reasons: Reasons) -> Generator[Round]:
    """Rounds of all lanes in the order of their clocks.

    A lane's next round is held back until no other lane can finish one before it; the lane whose
    round was yielded last is the one behind, and runs next.
    """
    waiting: dict[Lane, Round | None] = {}
    due = list(lanes)
    try:
        while True:
            for lane in due:
                waiting[lane] = _next_round(lane, lanes[lane], reasons)
            ready = [held for held in waiting.values() if held is not None]
            if not ready:
                return
            first = min(ready, key=lambda held: held.clock)
            waiting[first.lane], due = None, [first.lane]
            yield first
    except Exception:
        # A round that one lane has finished is not lost with another lane.
        yield from (held for held in waiting.values() if held is not None)
        raise


def _one_by_one(lanes: dict[Lane, LaneEvents], reasons: Reasons) -> Generator[Round]:
    for lane, events in lanes.items():
        while (result := _next_round(lane, events, reasons)) is not None:
            yield result


def _next_round(lane: Lane, events: LaneEvents, reasons: Reasons) -> Round | None:
    try:
        result = next(events)
    except StopIteration as stop:
        reasons[lane] = stop.value
        return None
    assert isinstance(result, Round)
    return result


def _stop(last: Lane, lanes: dict[Lane, LaneEvents], reasons: Reasons) -> None:
    """End all lanes after a round of `last`; those that had ended keep their reasons."""
    if last not in reasons:
        try:
            lanes[last].send(True)
        except StopIteration as stop:
            reasons[last] = stop.value
    for lane in lanes:
        # What it may have computed beyond the last round was seen by nobody.
        reasons.setdefault(lane, "stopped")


def _header(
    pair: Pair,
    prompt_ids: list[int],
    settings: dict[Lane, Settings],
    mode: Mode,
    prefilled: dict[Lane, Prefilled],
) -> Header:
    lanes = {lane: own for lane, own in settings.items() if lane != BASELINE}
    drafts = {
        lane: _draft_described(pair, prefilled[lane], own.drafter) for lane, own in lanes.items()
    }
    first, named = next(iter(lanes)), set(lanes) != {SPECULATIVE}
    return Header(
        prompt=pair.tokenizer.decode(prompt_ids),
        prompt_ids=tuple(prompt_ids),
        settings=lanes[first],
        target=_model_described(pair.target, prefilled[first].forms["target"]),
        draft=drafts[first],
        device=_device_name(pair),
        dtype=str(pair.target.dtype).removeprefix("torch."),
        versions=_versions(pair.device),
        threads=torch.get_num_threads(),
        lane_threads={lane: first.threads for lane, first in prefilled.items()},
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        prefill_seconds={lane: first.seconds for lane, first in prefilled.items()},
        mode=mode,
        processor=_processor_name(),
        lanes=lanes if named else None,
        drafts=drafts if named else None,
        streaming_rate=_streaming_rate(pair, prompt_ids),
    )


def _streaming_rate(pair: Pair, prompt_ids: list[int]) -> float | None:
    """How fast the target's server streams by itself; None if it has none or does not tell."""
    if not isinstance(pair.target, RemoteTarget):
        return None
    room = context_length(pair.target)
    if room is not None and len(prompt_ids) + STREAMED > room:
        return None
    try:
        return pair.target.server.streaming_rate(prompt_ids, STREAMED)
    except (PairError, ServerError):  # the race needs no stream
        return None


def _draft_described(pair: Pair, prefilled: Prefilled, drafter: str) -> dict[str, Any] | None:
    form, layers = prefilled.forms.get("draft"), prefilled.layers
    if form is None:
        return None
    if drafter == "head":
        # A head may have been trained on shorter texts, but it reads any length.
        return _described(pair.head, form, None)
    if layers is None:
        described = _model_described(pair.draft, form)
        return described | ({"shared": len(pair.shared.pairs)} if pair.shared else {})
    whole = _model_described(pair.target, form)
    name = f"{whole['name']}, layers 1 to {layers}"
    shallow = truncated_model(pair.target, layers)
    return {**whole, "name": name, "parameters": parameter_count(shallow)}


def _versions(device: torch.device) -> dict[str, str]:
    versions = {
        "specviz": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }
    return versions | ({"cuda": str(torch.version.cuda)} if device.type == "cuda" else {})


def model_name(model: Any) -> str:
    """The name of a model in a header."""
    # A model loaded from a folder is named by the folder: whole paths are private.
    name = str(getattr(model, "name_or_path", "") or type(model).__name__)
    return Path(name).name if Path(name).is_absolute() or Path(name).is_dir() else name


def _model_described(model: Any, form: str) -> dict[str, Any]:
    return _described(model, form, context_length(model))


def _described(model: Any, form: str, context: int | None) -> dict[str, Any]:
    return {
        "name": model_name(model),
        "parameters": parameter_count(model),
        "form": form,
        "revision": getattr(model.config, "_commit_hash", None),
        "context": context,
    }


def _device_name(pair: Pair) -> str:
    if isinstance(pair.target, RemoteTarget):
        return pair.target.abilities.software
    device = pair.device
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return {"cpu": "CPU", "mps": "Apple GPU"}.get(device.type, device.type)


@cache
def _processor_name() -> str:
    # On Linux Python knows only the architecture; the kernel knows the name.
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _end(emitted: dict[str, list[Round]], reasons: Reasons, settings: dict[Lane, Settings]) -> End:
    if not settings[BASELINE].greedy:
        return End(reasons)
    found = {
        lane: _agreement(rounds, emitted[BASELINE])
        for lane, rounds in emitted.items()
        if lane != BASELINE
    }
    first = next(iter(found.values()))
    named = found if set(found) != {SPECULATIVE} else None
    return End(reasons, first.identical, first.compared, first.divergence, named)


def _agreement(rounds: list[Round], alone: list[Round]) -> Agreement:
    ours, theirs = ([t for r in lane for t in r.emitted] for lane in (rounds, alone))
    compared = min(len(ours), len(theirs))
    pairs = zip(ours, theirs, strict=False)
    index = next((i for i, (a, b) in enumerate(pairs) if a.id != b.id), None)
    if index is None:
        return Agreement(True, compared)
    return Agreement(False, compared, Divergence(index, margin_of(theirs[index])))
