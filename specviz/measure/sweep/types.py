"""The request, the events and the result of a sweep: data without behaviour.

`dataclasses.asdict` makes it JSON-ready, for other processes and for the browser. This module does
not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any, Literal, TypeAlias

from ...core.registry import drafter_kind, swept_drafters
from ...core.settings import Settings
from ...pairs.prompts import PromptOfKind
from ...runs.uncertainty import Estimate, Spread

SCHEMA = 1
"""The version of a sweep's JSON."""

SWEPT = ("drafters", "gammas", "policies", "temperatures")
"""The fields of a request; each combination of their values is a row."""

Mark: TypeAlias = Literal["best", "tied", "open"]
"""The best measured row of its temperature; rows that cannot be distinguished from it within noise;
and rows with a higher prediction that ran on too few of its prompts to tell."""

Status: TypeAlias = Literal["planned", "predicted", "measured", "eliminated", "left out"]
"""The progress of a row: neither predicted nor measured; predicted only (its `note` says why);
measured; measured until it was clearly slower than the best; not possible with this pair (its
`note` says why)."""

Answer: TypeAlias = Literal["speculate", "do not speculate", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings that a row tries. drafter, gamma, policy, temperature: as in `Settings`."""

    drafter: str
    gamma: int
    policy: str
    temperature: float

    @property
    def key(self) -> str:
        """A short unique text, such as "model g5 fixed t0"."""
        return f"{self.drafter} g{self.gamma} {self.policy} t{self.temperature:g}"

    @property
    def name(self) -> str:
        """The name on the page, without the temperature: "Draft model, γ 5"."""
        drafter = drafter_kind(self.drafter).choice
        if self.policy == "fixed":
            return f"{drafter}, γ {self.gamma}"
        return f"{drafter}, γ ≤ {self.gamma}, {self.policy}"

    @property
    def label(self) -> str:
        """The name within a sentence: "draft model, γ 5"."""
        is_acronym = self.name[1:2].isupper()
        if is_acronym:
            return self.name
        return self.name[:1].lower() + self.name[1:]

    @property
    def title(self) -> str:
        """The name at the beginning of a sentence: "N-grams, γ 5"."""
        return self.name[:1].upper() + self.name[1:]

    def settings(self, base: Settings) -> Settings:
        """`base` with this configuration. Raises `SettingsError`."""
        return replace(
            base,
            drafter=self.drafter,
            gamma=self.gamma,
            gamma_policy=self.policy,
            temperature=self.temperature,
        )


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """A request to try every drafter with every gamma, policy and temperature.

    prompts: at least one. base: all other settings (length, top_k, top_p, seed, chat).
    seconds: the time budget of decoding and predicting.
    """

    prompts: tuple[PromptOfKind, ...]
    drafters: tuple[str, ...] = field(default_factory=swept_drafters)
    gammas: tuple[int, ...] = (1, 2, 3, 5, 8)
    policies: tuple[str, ...] = ("fixed", "confidence")
    temperatures: tuple[float, ...] = (0.0,)
    seconds: float = 60.0
    base: Settings = field(default_factory=lambda: Settings(max_new_tokens=64, ignore_eos=True))

    def configurations(self) -> tuple[Configuration, ...]:
        """Every row, in the order of the table. A policy that adapts gamma has one row for each
        drafter, up to the largest."""
        rows = []
        for temperature, drafter in product(self.temperatures, self.drafters):
            for policy in self._policies_of(drafter):
                for gamma in self._gammas_of(policy):
                    rows.append(Configuration(drafter, gamma, policy, temperature))
        return tuple(rows)

    def _policies_of(self, drafter: str) -> Sequence[str]:
        """A drafter without a model has no confidence: that policy would be `optimal`."""
        if drafter_kind(drafter).has_model:
            return self.policies
        return [policy for policy in self.policies if policy != "confidence"] or ["optimal"]

    def _gammas_of(self, policy: str) -> Sequence[int]:
        if policy == "fixed":
            return sorted(self.gammas)
        return sorted(self.gammas)[-1:]


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """Figures of rounds, as in `runs.metrics`: emitted tokens per round (tau), accepted / judged
    (alpha), accepted / drafted (efficiency), and drafted tokens per round. None instead of a
    division by 0."""

    tau: float | None
    alpha: float | None
    alpha_by_position: tuple[float | None, ...]
    efficiency: float | None
    drafted: float


@dataclass(frozen=True, slots=True)
class Predicted(RoundFigures):
    """The prediction of a row, before it is measured.

    exact: whether the rounds were derived token for token (greedy), else they are expectations.
    speedup: from the rounds and the measured costs of passes, limited by tau and c; None until
        these costs are known.
    prompts: the number of texts behind it.
    enough: whether the costs come from enough rounds to give a row up.
    """

    exact: bool
    speedup: float | None
    prompts: int = 1
    enough: bool = True


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """The times of a mean round, in milliseconds: drafting, the target's pass with the verdict, and
    all other work. alone: a whole round of the target alone."""

    draft: float
    verify: float
    overhead: float
    alone: float


@dataclass(frozen=True, slots=True)
class Measured(RoundFigures):
    """The measured figures of a row; both lanes of each run were interleaved.

    runs: their number.
    prompts: the number of different ones.
    rate, alone_rate: tokens per second with drafts and without.
    speedup: geometric mean over prompts, with a bootstrap interval over prompts; None if all runs
        are too short to compare.
    by_kind: the same by kind of prompt.
    tau_predicted: by the formula, from alpha.
    c: a draft step in target passes, median over runs.
    doubts: the number of runs that were delayed by something else on the machine; the figures come
        from the others, or from all if there are no others.
    """

    runs: int
    prompts: int
    rate: Spread
    alone_rate: Spread
    speedup: Estimate | None
    by_kind: dict[str, Estimate]
    tau_predicted: float | None
    c: float | None
    times: RoundTimes
    doubts: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table.

    memory: bytes of the weights that a deployment of this row needs (target, and the draft model
    if it drafts). mark: see `Mark`. note: why it is left out, as a sentence; why it was not
    measured, as half a sentence; or empty.
    """

    configuration: Configuration
    status: Status = "planned"
    mark: Mark | None = None
    predicted: Predicted | None = None
    measured: Measured | None = None
    memory: int | None = None
    note: str = ""

    @property
    def key(self) -> str:
        """The key of its configuration."""
        return self.configuration.key

    @property
    def drafter(self) -> str:
        """The drafter of its configuration."""
        return self.configuration.drafter

    @property
    def temperature(self) -> float:
        """The temperature of its configuration."""
        return self.configuration.temperature

    @property
    def known(self) -> Measured | Predicted | None:
        """The measured figures, or else the predicted ones."""
        return self.measured or self.predicted

    @property
    def speedup(self) -> Estimate | None:
        """The measured speed-up."""
        return self.measured.speedup if self.measured else None

    @property
    def promise(self) -> float | None:
        """The predicted speed-up."""
        return self.predicted.speedup if self.predicted else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a sweep.

    rows: every configuration, in the order of the table, also those that are left out later. kinds:
    the number of prompts by kind. pieces: their estimated number. seconds: the time budget. now: as
    in `SweepProgress`.
    """

    rows: tuple[Row, ...]
    kinds: dict[str, int]
    pieces: int
    seconds: float
    now: str = ""


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """The progress of a sweep. done, total: pieces, each one prompt with one configuration.
    seconds_left: an estimate. now: the next piece as half a sentence, such as "measuring n-grams,
    γ 5, on a list"."""

    done: int
    total: int
    seconds_left: float
    now: str


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of the best row that another engine can run.

    engine: "transformers", "vLLM", "SGLang" or "llama.cpp".
    version: of the documentation behind them. source: its address.
    text: to paste; empty if the engine can run none of the rows that pay.
    note: sentences on differences, on which row it is if not the best of all, or on why there is no
        text.
    """

    engine: str
    version: str
    source: str
    text: str
    note: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The advice at one temperature.

    headline: one sentence.
    reasons: sentences.
    doubt: sentences on the limits of the measurement, or empty.
    best: the row to use; None unless the answer is "speculate".
    settings: for each other engine, the best row that it can run.
    prompt: one of the sweep, on which the best row had about its usual speed-up; empty without a
        best row.
    """

    temperature: float
    answer: Answer
    headline: str
    reasons: tuple[str, ...] = ()
    doubt: str = ""
    best: Configuration | None = None
    settings: tuple[EngineSettings, ...] = ()
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """The location of a model, for the command line of another engine.

    name: its hub id, folder or GGUF file. gguf: its GGUF file, None if no such file is known.
    package, repository: the package or the hub's repository that holds this file, or empty.
    """

    name: str
    gguf: str | None = None
    package: str = ""
    repository: str = ""

    @property
    def is_file(self) -> bool:
        """Whether the model is known only as a GGUF file on this machine."""
        return self.gguf is not None and not self.package and not self.repository


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the models of a sweep.

    pair, target, draft: names; draft is None if the pair has none.
    form: of the target's passes.
    threads: of the target alone.
    exit_layers: the layers of an early exit, if one is swept.
    target_place, draft_place: None if only the names are known.
    """

    pair: str
    target: str
    draft: str | None
    device: str
    processor: str
    dtype: str
    form: str
    threads: int
    versions: dict[str, str]
    date: str
    exit_layers: int | None = None
    target_place: ModelLocation | None = None
    draft_place: ModelLocation | None = None

    @property
    def target_files(self) -> ModelLocation:
        """The target's location, or its name."""
        return self.target_place or ModelLocation(self.target)

    @property
    def draft_files(self) -> ModelLocation:
        """The draft's location, or its name."""
        return self.draft_place or ModelLocation(str(self.draft))


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep so far.

    stopped: whether it ended before its plan.
    spent: seconds of decoding.
    link: the query of the page's address that sets the first recommended row, or empty.
    notes: sentences on failures on the way, such as prompts that were left out.
    """

    request: SweepRequest
    rows: tuple[Row, ...]
    recommendations: tuple[Recommendation, ...]
    machine: Machine | None
    stopped: bool
    spent: float
    link: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Make the JSON of the result, with the version of its form in "schema"."""
        return {"schema": SCHEMA, **asdict(self)}


SweepEvent: TypeAlias = Plan | SweepProgress | SweepResult
"""A sweep yields its `Plan`, then a `SweepProgress` after each piece and after a long preparation
of a drafter, and at its end, also when it is stopped, the `SweepResult`."""
