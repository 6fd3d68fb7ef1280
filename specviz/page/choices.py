"""Which pairs a visitor may choose, and how the page names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NewType

from ..environment import ANY_MODEL, BUILTIN, REMOTE, SERVED
from ..errors import PairError
from ..models.catalogue import (
    FITS,
    FITS_SMALLER,
    NamedPair,
    named_pairs,
    operator_pairs,
    pairs_by_fit,
)
from ..models.sizes import shown_bytes
from ..remote.watched.recognise import watched_addresses
from ..worker.loading import WEIGHTS, pair_and_options, with_weights
from ..worker.tasks import Machine

OTHER = "other"
NO_DRAFT = "none"
PICKLED = "but published as a pickle, which is not loaded"
MOST_NAME = 300  # characters of a model's or a pair's name

Model = NewType("Model", str)
"""What a visitor may call a model: an id of the hub, or a folder. No address is one."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?", re.ASCII)


def others_allowed() -> bool:
    """Whether the operator lets visitors name any model of the hub and any folder."""
    return ANY_MODEL.read()


def offered_pairs() -> Sequence[NamedPair]:
    """The pairs of the table that the operator offers: those in SPECVIZ_PAIRS, or all."""
    wanted = operator_pairs()
    return [one for one in named_pairs() if not wanted or one in wanted or one.name == BUILTIN]


def pair_choices(pair: str, machine: Machine | None) -> list[tuple[str, str]]:
    """The pairs that the page lists, as (label, value); those that fit this machine come first."""
    offered = offered_pairs()
    choices = [] if any(one.name == pair for one in offered) else [(pair, pair)]
    if machine is None:
        choices += [(_title(one), one.name) for one in offered]
    else:
        for fit, members in pairs_by_fit(machine.free, cpu=machine.cpu).items():
            listed = [one for one in members if one in offered]
            choices += [(_label(one, fit, machine.cpu), one.name) for one in listed]
    if served := REMOTE.read():
        choices.append((_served_label(served), SERVED))
    return choices + ([("Another pair…", OTHER)] if others_allowed() else [])


def pair_models() -> dict[str, dict[str, tuple[str, int | None]]]:
    """The models of each offered pair, so that the browser can tell which pair a run was made with:
    pair -> "target" and, where it has them, "draft" and "head" -> the last part of the name, and
    the number of parameters, None if it is unknown."""
    return {
        pair.name: {
            role: (model.name.rpartition("/")[2], model.parameters)
            for role, model in (("target", pair.target), ("draft", pair.draft), ("head", pair.head))
            if model is not None
        }
        for pair in offered_pairs()
    }


def chosen_pair(
    choice: object, target: object, draft: object, weights: object = "usual", *, own: str
) -> str:
    """The name of the pair that a visitor chose, as tasks take it. All pairs that are named in a
    request come through here.

    weights: one of `loading.WEIGHTS`. own: the pair that the page was started with. Raises
    `PairError` for a pair that is not offered, because a request need not come from the page's
    own controls.
    """
    name = str(choice)
    if str(weights) not in WEIGHTS:
        raise PairError(f"weights are {weights!r}: use one of {', '.join(map(repr, WEIGHTS))}.")
    if name == SERVED and REMOTE.read():
        return SERVED
    if name == own or any(one.name == name for one in offered_pairs()):
        return with_weights(name, str(weights))
    if name != OTHER or not others_allowed():
        raise PairError("This pair is not offered here: choose one of the list.")
    if not str(target or "").strip():
        raise PairError("Name a target: a model of the hub, such as owner/model, or a folder.")
    drafted = str(draft or "").strip() or NO_DRAFT
    return with_weights(f"{_model(target)}+{_model(drafted)}", str(weights))


def asked_pair(name: object, *, own: str) -> str:
    """The pair that a program names in one text: as `chosen_pair` has it, or "TARGET+DRAFT" where
    any model may be named. Raises `PairError`."""
    if not isinstance(name, str) or len(name) > MOST_NAME:
        raise PairError("The pair has no name that can be read: use a text such as 'builtin'.")
    bare, options = pair_and_options(name.strip())
    weights = next(known for known, ones in WEIGHTS.items() if ones == options)
    if "+" not in bare or bare == own:
        return chosen_pair(bare, "", "", weights, own=own)
    target, draft = _halves(bare)
    if not draft.strip():
        raise PairError("The pair has no draft: name it TARGET+DRAFT, or TARGET+none.")
    return chosen_pair(OTHER, target, draft, weights, own=own)


def _halves(name: str) -> tuple[str, str]:
    """Target and draft of "TARGET+DRAFT"; the name of a folder may contain a plus."""
    places = [place for place, sign in enumerate(name) if sign == "+"]
    place = next((one for one in places if _is_folder(name[:one].strip())), places[0])
    return name[:place], name[place + 1 :]


def _model(name: object) -> Model:
    """The model of this name. Raises `PairError` if it is neither an id of the hub nor a folder:
    an address, which only the operator may name, is never one."""
    model = str(name).strip()
    is_id = bool(_HUB_ID.fullmatch(model))
    if len(model) > MOST_NAME or "://" in model or not (is_id or _is_folder(model)):
        raise PairError(
            f"{model[:60]!r} is no model that can be named here: use one of the hub, such as "
            "owner/model, or a folder of the server's machine. Only the operator names servers."
        )
    return Model(model)


def _is_folder(name: str) -> bool:
    try:
        return Path(name).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):  # too long, of no known user, with a null byte
        return False


def naming_defaults(own: str) -> dict[str, str]:
    """What the controls that choose a pair hold when the page opens, by their name in an address,
    in the order of the arguments of `chosen_pair`."""
    return {"pair": own, "target": "", "draft": "", "weights": next(iter(WEIGHTS))}


def naming_choices(own: str) -> dict[str, list[str]]:
    """What an address may ask for, for those of `naming_defaults` that are lists."""
    return {"pair": [value for _, value in pair_choices(own, None)], "weights": list(WEIGHTS)}


def _title(pair: NamedPair) -> str:
    if pair.name == BUILTIN:
        return "Built-in pair"
    target, part = (model.name.rpartition("/")[2] for model in (pair.target, pair.parts[0]))
    return f"{target} + {part}{'' if pair.head is None else ', a head'}"


def _served_label(address: str) -> str:
    """What the operator's server is called: an address stands in no page."""
    models = address.partition("|")[0].partition("#")[2].strip()
    watched = watched_addresses(address) is not None
    return f"{models} · {'a server, watched' if watched else 'target on a server'}"


def _label(pair: NamedPair, fit: str, cpu: bool) -> str:
    if pair.name == BUILTIN:
        return _title(pair)
    size = shown_bytes(pair.bytes(pair.precision(cpu=cpu)))
    if not pair.sized:
        size = f"{size} and a head whose size is unknown until asked"
    smaller = "16 bits" if cpu else "8 or 4 bits"
    words = {FITS: f"fits, {size}", FITS_SMALLER: f"{size}: fits with {smaller}"}
    pickled = pair.head is not None and pair.head.safetensors is False
    fits = words.get(fit, f"{size}: too large here")
    return f"{_title(pair)} · {fits}{f', {PICKLED}' if pickled else ''}"
