"""A server's own description of itself, read before any request to its model."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..base.errors import PairError, ServerError
from .wire import Server

LLAMA_CPP = "llama.cpp"
VLLM = "vLLM"
UNKNOWN = "a server of OpenAI's protocol"
SGLANG = "SGLang"
OLLAMA = "Ollama"
LM_STUDIO = "LM Studio"
OWNERS = {"sglang": SGLANG, "library": OLLAMA, "organization_owner": LM_STUDIO}
"""Engines by the owner that they name for a model."""
ROUTER = "router"  # the role of a llama.cpp server that starts others, one for each model
MAX_SHOWN = 40  # characters of a version

Counted: TypeAlias = dict[str, int]
"""A server's counters: verify steps, and drafted and accepted tokens in them."""

NAMES = {"drafts": "steps", "draft_tokens": "drafted", "accepted_tokens": "accepted"}
LINE = re.compile(
    r"^(?:vllm:|llamacpp:)spec_decode_num_(drafts|draft_tokens|accepted_tokens)_total"
    r"(\{[^}]*\})? ([0-9.e+]+)$",
    re.MULTILINE,
)
POSITION_LINE = re.compile(
    r"^(?:vllm:|llamacpp:)spec_decode_num_accepted_tokens_per_pos_total"
    r"(\{[^}]*\}) ([0-9.e+]+)$",
    re.MULTILINE,
)
POSITION = re.compile(r'position="(\d+)"')


@dataclass(frozen=True, slots=True)
class Identity:
    """A server as it describes itself, without a request to its model.

    engine: LLAMA_CPP, VLLM, one of `OWNERS` or UNKNOWN.
    software: the engine with its version.
    context: the context window in tokens, None if unknown.
    parameters: of the model, 0 if unknown.
    counted: counters of its own speculation since its start; None if it has none, as vLLM without
        speculation.
    """

    engine: str
    software: str
    context: int | None
    parameters: int
    counted: Counted | None

    @property
    def speculates(self) -> bool:
        """Whether the server drafts by itself. llama.cpp always has counters; without drafts they
        are 0."""
        if self.counted is None:
            return False
        return self.engine != LLAMA_CPP or self.counted["drafted"] > 0


def identity_of(server: Server, model: str) -> Identity:
    """The identity of a server that has this model. Raises `ServerError`, and `PairError` if it
    has no model of this name."""
    models = served_models(server)
    if model not in models:
        names = ", ".join(sorted(models)[:5]) or "none"
        raise PairError(f"{server.shown} has no model {model!r}: use one of its models, {names}.")
    entry = models[model]
    meta = _as_object(entry.get("meta"))
    context = positive(entry.get("max_model_len")) or positive(meta.get("n_ctx"))
    owner = entry.get("owned_by")
    version = ""
    if owner == "llamacpp":
        engine = LLAMA_CPP
        props = _llama_cpp_props(server, model)
        version = props.get("build_info", "")
        if context is None:
            defaults = _as_object(props.get("default_generation_settings"))
            context = positive(defaults.get("n_ctx"))
    elif owner in OWNERS:
        engine = OWNERS[str(owner)]
    else:
        version = _object_at(server, "/version").get("version", "")
        engine = UNKNOWN
        if version:
            engine = VLLM
    return Identity(
        engine=engine,
        software=f"{engine} {str(version or '')[:MAX_SHOWN]}".rstrip(),
        context=context,
        parameters=positive(meta.get("n_params")) or 0,
        counted=counters(server, model),
    )


def _llama_cpp_props(server: Server, model: str) -> dict[str, Any]:
    """The properties that a server of llama.cpp, or a router to several, shows of a model."""
    props = _object_at(server, "/props")
    if props and props.get("role") != ROUTER:
        return props
    return _object_at(server, "/props", model)


def served_models(server: Server) -> dict[str, dict[str, Any]]:
    """The server's models by name, with its description of each. Raises `ServerError`."""
    listing = server.ask("models")
    try:
        return {str(entry["id"]): dict(entry) for entry in listing["data"]}
    except (KeyError, TypeError, ValueError) as error:
        raise PairError(server.rubbish()) from error


def counters(server: Server, model: str) -> Counted | None:
    """The server's counters of its own speculation for a model; None if it shows none."""
    text = counters_text(server, model)
    if text is None:
        return None
    return counted_in(text, model)


def counters_text(server: Server, model: str) -> str | None:
    """The text of a server's /metrics; None if it has none."""
    for query in (None, {"model": model}):  # a router of llama.cpp needs the model's name
        with suppress(PairError, ServerError):
            return server.text("/metrics", query)
    return None


def counted_in(text: str, model: str) -> Counted | None:
    """The counters of a model's speculation in the text of /metrics; None if some are missing."""
    totals: Counter[str] = Counter()
    for name, labels, value in LINE.findall(text):
        if _is_of_model(labels, model):
            totals[NAMES[name]] += int(float(value))
    if len(totals) < len(NAMES):
        return None
    return dict(totals)


def accepted_by_position(text: str, model: str) -> dict[int, int]:
    """The number of accepted drafts at each position of a step, from 0, in the text of /metrics;
    empty if it has none."""
    totals: Counter[int] = Counter()
    for labels, value in POSITION_LINE.findall(text):
        position = POSITION.search(labels)
        if position is not None and _is_of_model(labels, model):
            index = int(position.group(1))
            totals[index] += int(float(value))
    return dict(totals)


def _is_of_model(labels: str, model: str) -> bool:
    return "model_name=" not in labels or f'model_name="{model}"' in labels


def moved(before: Counted | None, after: Counted | None) -> Counted | None:
    """The increase of counters; None if they are unknown, or were reset in between."""
    if before is None or after is None:
        return None
    difference = {name: after[name] - before[name] for name in after}
    if min(difference.values()) < 0:
        return None
    return difference


def positive(value: Any) -> int | None:
    """Return a whole number above 0 as it is, and None for anything else."""
    if type(value) is not int or value <= 0:
        return None
    return value


def _object_at(server: Server, path: str, model: str | None = None) -> dict[str, Any]:
    """The JSON object at "/path", perhaps of one of the server's models; empty if there is
    none."""
    query: dict[str, str] | None = None
    if model:
        query = {"model": model}
    try:
        answer = server.ask(path, query=query)
    except (PairError, ServerError):
        return {}
    return _as_object(answer)


def _as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object as it is, and an empty one for anything else."""
    if not isinstance(value, dict):
        return {}
    return value
