"""The records of kinds: everything that the program knows of a drafter, a verdict or an engine.

Each side has the records of its own kinds. `specviz.kinds` puts them into `core.registry`. Every
process reads the records, also one that runs no model. So the module of a record imports no heavy
library; the functions that the record names do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from .drafter import Drafter
    from .pair import Pair
    from .protocols import DecodingPath, Engine, HostRule, LanguageModel, Rule, StateEngine
    from .states import DraftHead, StateReader
    from .types import RunContext

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""A pattern for the names of drafters and verdicts."""


@dataclass(frozen=True, kw_only=True)
class DrafterKind:
    """A source of drafts.

    name: in `Settings.drafter`, on command lines and in recordings.
    make: (pair, run, target_path) -> `Drafter`, once per lane and run; target_path is the
        `DecodingPath` that judges the drafts. It may raise `PairError`.
    label: its name within a line: "n-grams".
    choice: its name on a control; by default the label.
    lane: the name of a lane that differs from others by its drafter; by default the label.
    clause: a clause on who guesses: "a small model guesses ahead".
    round_start: the beginning of a sentence on one round: "The draft guesses" three tokens, one
        after the other.
    round_sentence, greedy_round_sentence: that whole sentence instead, with "{count}" for the
        number of tokens.
    no_draft_sentence: a sentence on why a round has no drafts.
    needs: the part of a pair (`Pair.parts`) that it drafts with, None if it can draft for any pair.
    reads_states: whether it reads the target's hidden states.
    reads_memory: whether it drafts from earlier texts too.
    predicted: how a sweep predicts its drafts along a known text: at each "position" of it alone,
        "copied" from it, "chained" from the target's states; None if only a run shows them.
    certain: whether q is 1 for each of its drafts, also where the target samples.
    from_counts: whether q is a share of counts, which tokens then have (`Token.seen`).
    cost: the approximate cost of a draft step: a pass of the "draft" model, of the "target", or
        "nothing".
    has_model: whether a model drafts, which a header describes and whose prefill it times.
    described: (pair, engine, layers) -> that description, if it is not that of `Pair.draft`; engine
        is the drafting engine's name.
    deployed: (row, machine) -> by engine, "" for all others, the same drafter's settings and a
        note, for tables of what to deploy: empty settings if the engine cannot do this.
    drafts: whether it drafts anything.
    page_order: its position among drafters that race side by side, the lowest first.
    package: name and version of the package that provides it; None for those of this one.
    """

    name: str
    make: Callable[[Pair, RunContext, DecodingPath], Drafter]
    label: str
    choice: str = ""
    lane: str = ""
    clause: str = "your own drafter guesses"
    round_start: str = "The drafter guesses"
    round_sentence: str = ""
    greedy_round_sentence: str = ""
    no_draft_sentence: str = "Nothing was drafted in this round."
    needs: str | None = None
    reads_states: bool = False
    reads_memory: bool = False
    predicted: Literal["position", "copied", "chained"] | None = None
    certain: bool = False
    from_counts: bool = False
    cost: Literal["draft", "target", "nothing"] = "nothing"
    has_model: bool = False
    described: Callable[[Pair, str, int | None], dict[str, Any]] | None = None
    deployed: Callable[[Any, Any], Mapping[str, tuple[str, str]]] | None = None
    drafts: bool = True
    page_order: int = 9
    package: str | None = None

    def __post_init__(self) -> None:
        if not self.choice:
            object.__setattr__(self, "choice", _capitalised(self.label))
        if not self.lane:
            object.__setattr__(self, "lane", self.label)


@dataclass(frozen=True, kw_only=True)
class VerdictKind:
    """A way to judge drafts: a rule, and what the page and the reports say about it.

    name: in `Settings.verdict`.
    decide: the rule itself, with the signature of `core.tensor_verdict.decide_on_tensors`.
    decide_on_host: the same rule for rows in the host's memory, where it is faster, with the
        signature of `core.verdict.decide_in_numpy`; None judges tensors there too.
    label, choice: as a `DrafterKind`'s.
    exact: whether the text follows the target's distribution.
    clause: a clause on what it does.
    exactness_note: a sentence on why the text follows the target's distribution, or that it does
        not.
    note: a remark next to a round's first verdict.
    correction_label: the words for the distribution of a correction.
    beta_label: the words for the mean of beta.
    chance: whether judged tokens have `Token.chance`.
    threshold: the number that is compared with thresholds: "u", "p", or None without thresholds.
    weighted: whether tokens have a weight, too.
    judges_jointly: whether all drafts of a round are judged at once.
    draws: whether u is compared with anything.
    residual: whether corrections are drawn from the residual of p.
    numbers: (p, q, drafted) -> the numbers of each draft that a reader needs besides p, q and u:
        tensors [gamma] by field of `Token`.
    correction: (p, q, drafted, position) -> the distribution [vocab] of the token that replaces the
        draft rejected at `position`, or None if it is p itself.
    package: as a `DrafterKind`'s.
    """

    name: str
    decide: Rule
    label: str
    exact: bool = True
    choice: str = ""
    clause: str = "your own rule judges"
    exactness_note: str = ""
    note: str = ""
    correction_label: str = ""
    beta_label: str = "mean overlap of the two distributions"
    chance: bool = False
    threshold: Literal["u", "p"] | None = None
    weighted: bool = False
    judges_jointly: bool = False
    draws: bool = True
    residual: bool = True
    numbers: Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]] | None = None
    correction: Callable[[Tensor, Tensor, Tensor, int], Tensor | None] | None = None
    decide_on_host: HostRule | None = None
    package: str | None = None

    def __post_init__(self) -> None:
        if not self.choice:
            object.__setattr__(self, "choice", _capitalised(self.label))

    @property
    def warning(self) -> str:
        """A warning sentence on the texts of a rule that is not exact; empty if it is exact."""
        if self.exact:
            return ""
        return (
            f"The verdict {self.label} changes the text: it does not follow the target's "
            "distribution."
        )


def _capitalised(label: str) -> str:
    return label[:1].upper() + label[1:]


class Arithmetic(NamedTuple):
    """The time to multiply one more token with one weight, in bytes of a large model that could be
    read in that time: for plain weights, packed ones, and packed ones multiplied as integers."""

    plain: float
    packed: float
    integer: float


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    """A kind of engines.

    name: their name, which headers have; details of one engine may follow after a comma.
    label: in words.
    make: (model, vocab) -> `Engine`, or None if it cannot run this model exactly.
    package: a module that must be installed.
    hidden_states: whether it hands them out.
    anywhere: whether it runs every model, so that no trial is needed.
    make_head: (head, vocab, target) -> an engine of a head, or None.
    threads: (target, draft, vocab, width) -> how many threads suit such rounds.
    call_on_cpu, call_elsewhere: bytes that could be read during the call of one module: a static
        form makes fewer and cheaper calls, and in compiled passes only the work itself is left.
        On a processor they are right to about half an order of magnitude. Elsewhere they are those
        of an H100, with models of 14 million to 8 billion parameters.
    kernel_cost: (model, engine) -> bytes that could be read between the kernels of a one-token pass
        on a GPU, where their number is known; engine is its whole name.
    extra_token: what each further token adds to a pass of a small model on a processor, in passes
        of one token: the faster a pass reads, the sooner arithmetic is its limit. On two cores of
        an AMD EPYC, six tokens of the built-in target take 2.2 times as long as one in compiled
        passes, and 1.7 times as long in transformers' modules.
    arithmetic: what each further token adds to a pass of a large model on a processor; None is
        `extra_token`, whatever the size.
    warms_once: whether a warm-up lasts for the process, except that threads fall asleep.
    """

    name: str
    label: str
    make: Callable[[Any, int], Engine | None] | None = None
    package: str | None = None
    hidden_states: bool = False
    anywhere: bool = False
    make_head: Callable[[DraftHead, int, StateEngine], StateReader | None] | None = None
    threads: Callable[[LanguageModel, LanguageModel | None, int, int], int] | None = None
    call_on_cpu: int = 2**17
    call_elsewhere: int = 2**25
    kernel_cost: Callable[[LanguageModel, str], int] | None = None
    extra_token: float = 0.14
    arithmetic: Arithmetic | None = None
    warms_once: bool = False
