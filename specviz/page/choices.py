"""Which pairs a visitor may choose, how the page names them, and which drafters they offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.environment import BUILTIN, SERVED
from ..base.errors import PairError
from ..base.variables import ANY_MODEL, REMOTE
from ..core.registry import drafter_names, drafters_for
from ..files.memory import shown_bytes
from ..pairs.beside import known_part
from ..pairs.spec import (
    NO_DRAFT,
    NOT_OFFERED,
    UNREADABLE,
    ModelsSpec,
    NamedSpec,
    PairSpec,
    ServedSpec,
    ServerSpec,
    WatchedSpec,
    operator_spec,
    parse_pair,
    visitor_spec,
)
from ..pairs.table import (
    FITS,
    FITS_SMALLER,
    NamedPair,
    at_hand,
    download_bytes,
    named_pair,
    named_pairs,
    operator_pairs,
    pairs_by_fit,
)
from ..worker.loading import WEIGHTS, pair_and_options, with_weights
from ..worker.tasks import Host
from .names import shown_pair, title_of, without_owner
from .security.owner import SEES_MODELS

OTHER = "other"
KEPT_PAIRS = 200  # whose drafters are known
PICKLED = "but published as a pickle, which is not loaded"


def offered_pairs() -> Sequence[NamedPair]:
    """The pairs of the table that the operator offers: those in SPECVIZ_PAIRS, or all."""
    wanted = operator_pairs()
    if not wanted:
        return named_pairs()
    return [row for row in named_pairs() if row in wanted or row.name == BUILTIN]


def pair_choices(pair: str, machine: Host | None) -> list[tuple[str, str]]:
    """The pairs that the page lists, as (label, value); those that fit this machine come first."""
    offered = offered_pairs()
    choices = []
    if all(row.name != pair for row in offered):
        choices.append((shown_pair(pair).title, pair))
    if machine is None:
        choices += [(title_of(row), row.name) for row in offered]
    else:
        choices += _choices_by_fit(offered, machine)
    if REMOTE.read():
        choices.append((_served_label(operator_spec()), SERVED))
    if ANY_MODEL.read():
        choices.append(("Another pair…", OTHER))
    return choices


def _choices_by_fit(offered: Sequence[NamedPair], machine: Host) -> list[tuple[str, str]]:
    choices = []
    for fit, members in pairs_by_fit(machine.free, cpu=machine.cpu).items():
        for row in members:
            if row in offered:
                label = _label(row, fit, machine.cpu)
                choices.append((label, row.name))
    return choices


def pair_models(page_pair: str) -> dict[str, dict[str, Any]]:
    """The models of each offered pair, so that the browser can tell which pair a run was made with:
    pair -> "target" and, where it has them, "draft" and "head" -> the last part of the name, and
    the number of parameters, None if it is unknown. "unpacked" is the dtype of a target that is not
    kept in its stored format, "bits" the bits of its weights if known, "chat" whether it was tuned
    for chat. page_pair: the pair that the page was started with, which need not be of the table."""
    offered = _offered_models()
    if page_pair in offered or page_pair == SERVED:
        return offered
    shown = shown_pair(page_pair)
    models: dict[str, Any] = {"target": (shown.target, None)}
    if shown.draft is not None:
        models["draft"] = (shown.draft, None)
    return {page_pair: models, **offered}


def _offered_models() -> dict[str, dict[str, Any]]:
    offered: dict[str, dict[str, Any]] = {}
    for pair in offered_pairs():
        models: dict[str, Any] = {}
        by_role = {"target": pair.target, "draft": pair.draft, "head": pair.head}
        for role, model in by_role.items():
            if model is not None:
                models[role] = (without_owner(model.name), model.parameters)
        models["chat"] = pair.target.chat
        if pair.target_dtype is not None:
            models["unpacked"] = pair.target_dtype
        if pair.target_bits is not None:
            models["bits"] = pair.target_bits
        offered[pair.name] = models
    return offered


def chosen_pair(
    choice: object, target: object, draft: object, weights: object = "usual", *, page_pair: str
) -> str:
    """The task's name of the pair that a visitor chose. Every pair that a request names is checked
    here.

    weights: one of `loading.WEIGHTS`. page_pair: the pair that the page was started with. Raises
    `PairError` for a pair that is not offered, because a request may not come from the page's own
    controls.
    """
    name = str(choice)
    if str(weights) not in WEIGHTS:
        allowed = ", ".join(map(repr, WEIGHTS))
        raise PairError(f"weights are {weights!r}: use one of {allowed}.")
    if name != OTHER or not ANY_MODEL.read():
        return with_weights(_offered(name, page_pair), str(weights))
    target = str(target or "").strip()
    draft = str(draft or "").strip()
    if not target:
        raise PairError(
            "Name a target: a model of the hub, such as owner/model, a folder or a GGUF file."
        )
    spec = visitor_spec(f"{target}+{draft or NO_DRAFT}", any_model=True)
    return with_weights(str(spec), str(weights))


def requested_pair(fields: Mapping[str, Any], *, page_pair: str) -> str:
    """The `chosen_pair` of the fields of the page's own request. Raises `PairError`."""
    return chosen_pair(
        fields.get("pair"),
        fields.get("target"),
        fields.get("draft"),
        fields.get("weights"),
        page_pair=page_pair,
    )


def asked_pair(name: object, *, page_pair: str) -> str:
    """The pair that a program names in one text, with its weights in the form of `with_weights`.
    Raises `PairError`."""
    if not isinstance(name, str):
        raise PairError(UNREADABLE)
    bare, options = pair_and_options(name.strip())
    weights = next(name for name, needed in WEIGHTS.items() if needed == options)
    return with_weights(_offered(bare, page_pair), weights)


def _offered(name: str, page_pair: str) -> str:
    """The pair of this name, if it is offered or any pair may be named. page_pair: the pair that
    the page was started with. Raises `PairError`."""
    if name == page_pair:
        return page_pair
    spec = visitor_spec(name, any_model=ANY_MODEL.read(), stored_models=SEES_MODELS.get())
    if isinstance(spec, NamedSpec):
        offered_names = [row.name for row in offered_pairs()]
        if spec.name not in offered_names:
            raise PairError(NOT_OFFERED)
    return str(spec)


def _served_label(spec: ServerSpec) -> str:
    """The label of the operator's server: a page never shows its address."""
    if isinstance(spec, WatchedSpec):
        return f"{spec.engine.model} · a server, watched"
    return f"{spec.target.model}+{spec.draft} · target on a server"


def _label(pair: NamedPair, fit: str, cpu: bool) -> str:
    if pair.name == BUILTIN:
        return title_of(pair)
    label = f"{title_of(pair)} · {_fit_in_words(pair, fit, cpu)}"
    if pair.head is not None and pair.head.safetensors is False:
        label += f", {PICKLED}"
    if not at_hand(pair):
        label += f" · download {shown_bytes(download_bytes(pair))}"
    return label


def _fit_in_words(pair: NamedPair, fit: str, cpu: bool) -> str:
    """A pair's size, and whether it fits this machine. fit: a key of `pairs_by_fit`."""
    precision = pair.precision(cpu=cpu)
    size = shown_bytes(pair.bytes(precision))
    if not pair.sized:
        size = f"{size} and a head of unknown size"
    if fit == FITS:
        return f"fits, {size}"
    if fit == FITS_SMALLER:
        smaller = "8 or 4 bits"
        if cpu:
            smaller = "16 bits"
        return f"{size}: fits with {smaller}"
    return f"{size}: too large here"


def listed_drafters(pair: str) -> tuple[str, ...] | None:
    """The drafters of a pair, its default first, from its name or from local files; None if neither
    tells them."""
    row = named_pair(pair)
    if row is not None:
        return row.drafters
    if pair == SERVED and REMOTE.read() is not None and isinstance(operator_spec(), ServedSpec):
        return drafters_for(["draft"])
    spec = _parsed(pair)
    if not isinstance(spec, ModelsSpec):
        return None
    if spec.draft is None:
        return drafters_for(["layers"])
    part = known_part(spec.draft)
    if part is None:
        return None
    return drafters_for(["layers", part])


def _parsed(pair: str) -> PairSpec | None:
    """The parsed pair of a name; None if it names no pair."""
    try:
        return parse_pair(pair)
    except PairError:
        return None


class Offers:
    """The drafters of pairs by name: of listed pairs, and of pairs that the doctor has examined."""

    def __init__(self) -> None:
        self._learned: dict[str, tuple[str, ...]] = {}

    def of(self, pair: str) -> tuple[str, ...]:
        """The drafters of this pair, its default first; all drafters if nothing is known of it."""
        name, _ = pair_and_options(pair)
        return listed_drafters(name) or self._learned.get(name) or drafter_names()

    def learn(self, pair: str, drafters: Sequence[str]) -> None:
        """Remember a pair's drafters, unless `drafters` is empty. The doctor examines one pair at a
        time, so this needs no lock."""
        name, _ = pair_and_options(pair)
        if drafters:
            self._learned.pop(name, None)
            self._learned[name] = tuple(drafters)
        if len(self._learned) > KEPT_PAIRS:
            del self._learned[next(iter(self._learned))]
