"""Recorded runs whose texts a test writes down, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toy_recordings import SAMPLED, recorded

from specviz import Round, Token, Trace
from specviz.core.events import End, Outcome
from specviz.core.lanes import BASELINE, SPECULATIVE

OUTCOMES: dict[str, Outcome] = {
    "+": "accepted",
    "-": "rejected",
    "~": "ignored",
    ">": "corrected",
    "*": "bonus",
}
"""The outcome of a scripted token, by its first character."""

PASS = 0.01  # seconds of a target pass


def scripted(question: str, rounds: Sequence[Sequence[str]]) -> Trace:
    """The run in which a target answered `question` in these rounds. Each token is its text behind
    the sign of its outcome, such as "+the"; the last of a round is the target's own. The target
    alone writes the same, a token per pass."""
    drafted: list[Round] = []
    alone: list[Round] = []
    for index, texts in enumerate(rounds):
        tokens = [_token(text) for text in texts]
        clock = PASS * (index + 1)
        drafted.append(Round(SPECULATIVE, index, tokens[:-1], tokens[-1], 0.0, PASS, 0.0, clock))
        for emitted in drafted[-1].emitted:
            own = replace(emitted, outcome="bonus")
            clock = PASS * (len(alone) + 1)
            alone.append(Round(BASELINE, len(alone), [], own, 0.0, PASS, 0.0, clock))
    settings = replace(SAMPLED, max_new_tokens=len(alone))
    toy = recorded(settings).header
    header = replace(toy, prompt=f"user: {question}", question=question)
    ordered = sorted([*drafted, *alone], key=lambda one: one.clock)
    return Trace(header, ordered, End({SPECULATIVE: "length", BASELINE: "length"}))


def _token(text: str) -> Token:
    outcome = OUTCOMES[text[0]]
    judged = None if outcome == "ignored" else 0.3
    return Token(1, text[1:], outcome, p=judged, q=0.6, u=0.75 if outcome == "rejected" else 0.25)
