"""Check the fields of a program's call. An unknown, missing or invalid field is named in the
answer, with the name that was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any, get_args, get_origin

import orjson

from .requests import MAX_ARGUMENTS, Refused, are_numbers, is_plain

ELSEWHERE = {
    "content": "prompt",
    "input": "prompt",
    "inputs": "prompt",
    "message": "prompt",
    "messages": "prompt",
    "question": "prompt",
    "query": "prompt",
    "text": "prompt",
    "model": "pair",
    "models": "pair",
    "max_completion_tokens": "max_new_tokens",
    "max_length": "max_new_tokens",
    "max_output_tokens": "max_new_tokens",
    "max_tokens": "max_new_tokens",
    "length": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "num_predict": "max_new_tokens",
    "num_tokens": "max_new_tokens",
    "draft_max": "gamma",
    "draft_tokens": "gamma",
    "gammas": "gamma",
    "num_assistant_tokens": "gamma",
    "num_draft_tokens": "gamma",
    "num_speculative_tokens": "gamma",
    "speculative_num_draft_tokens": "gamma",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "temp": "temperature",
    "chat_template": "chat",
    "max_seconds": "seconds",
    "max_new_tokens": "length",
    "gamma": "gammas",
    "policy": "gamma_policy",
    "gamma_policy": "policies",
    "temperature": "temperatures",
    "drafter": "drafters",
    "prompt": "prompts",
}
"""Field names of other programs and of our other endpoints, with the name here. Only names that the
endpoint has are suggested."""

NUMBERS = ("gammas", "temperatures")
"""The fields that take numbers: a list of them, or a text."""

_NAME = re.compile(r"[\w-]{1,40}", re.ASCII)
_WRONG_COUNT = (
    "The endpoint {0} takes {1} values, and this request has {2}: name those that differ from the "
    "defaults instead, at /gradio_api/call/v2/{0}."
)
LIKE = 0.6  # least similarity of two names for a suggestion

_CALL = re.compile(r"/gradio_api/call/(?P<named>v2/)?(?P<endpoint>\w+)/?")


def check_fields(path: str, raw: bytes, programs: Mapping[str, Signature]) -> None:
    """Raise `Refused` if the body of a call has an unknown field, lacks a field, or has a value of
    an invalid kind. Other requests, and bodies that are not JSON, are not checked.

    The body is an object of fields, or has a list of values in their order as "data". programs: the
    parameters of endpoints by name, in the order of their numbers, which "fn_index" gives.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return
    if not isinstance(body, dict):
        return
    call = _CALL.fullmatch(path)
    endpoint: str | None = _numbered(body.get("fn_index"), programs)
    if call:
        endpoint = call["endpoint"]
    if endpoint is None or endpoint not in programs:
        return
    parameters = programs[endpoint].parameters
    if call and call["named"]:
        fault = _fault(body, endpoint, parameters)
    else:
        fault = _fault_of_values(body.get("data", []), endpoint, parameters)
    if fault is not None:
        raise Refused(400, fault)


def _numbered(number: object, programs: Mapping[str, Signature]) -> str | None:
    """The endpoint with this number; None if there is none."""
    if isinstance(number, int) and 0 <= number < len(programs):
        return list(programs)[number]
    return None


def _fault_of_values(
    values: object, endpoint: str, parameters: Mapping[str, Parameter]
) -> str | None:
    """The fault of values in the order of the parameters; None if there is none."""
    if not isinstance(values, list):
        return None
    wrong_count = _WRONG_COUNT.format(endpoint, len(parameters), len(values))
    if len(values) > len(parameters):
        return wrong_count
    fields = dict(zip(parameters, values, strict=False))
    fault = _fault(fields, endpoint, parameters)
    if fault is None and len(values) < len(parameters):
        return wrong_count
    return fault


def _fault(
    fields: Mapping[str, Any], endpoint: str, parameters: Mapping[str, Parameter]
) -> str | None:
    """The fault of these fields, in one sentence; None if there is none."""
    for name in fields:
        if name not in parameters:
            free = [parameter for parameter in parameters if parameter not in fields]
            return _unknown(name, endpoint, free)
    for name, parameter in parameters.items():
        if name not in fields and parameter.default is Parameter.empty:
            return f"The field {name!r} is missing in {endpoint}: it takes {_kind_of(parameter)}."
    for name, value in fields.items():
        if not is_plain(value) or (are_numbers(value) and name not in NUMBERS):
            return f"The field {name!r} holds {_kind(value)}: use {_kind_of(parameters[name])}."
    return None


def _unknown(name: str, endpoint: str, free: list[str]) -> str:
    """The error for a field that does not exist. free: the fields that the call leaves out."""
    shown = "of this name"
    if _NAME.fullmatch(name):
        shown = repr(name)
    fault = f"There is no field {shown} in {endpoint}"
    meant = ELSEWHERE.get(name.lower())
    alike = difflib.get_close_matches(name.lower(), free, n=1, cutoff=LIKE)
    if meant not in free and alike:
        meant = alike[0]
    if meant in free:
        return f"{fault}: use {meant!r}."
    return f"{fault}: it takes {', '.join(free)}."


def _kind_of(parameter: Parameter) -> str:
    """The kind of values that a field takes, as the end of a sentence."""
    hint = parameter.annotation
    if parameter.name in NUMBERS:
        return f"a list of up to {MAX_ARGUMENTS} numbers, or a text of some"
    parts = (hint, *get_args(hint))
    if any(get_origin(part) is list for part in parts):
        return f"a list of up to {MAX_ARGUMENTS} texts"
    kinds = {str: "a text", int: "a whole number", float: "a number"}
    return kinds.get(hint, "a plain value")


def _kind(value: object) -> str:
    """The kind of an invalid value. A stranger's value is not repeated."""
    if not isinstance(value, list):
        return "an object"
    if len(value) > MAX_ARGUMENTS:
        return "a longer list"
    return "a list of other things than texts"
