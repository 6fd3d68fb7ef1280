"""Numbers and clauses as the terminal says them."""

from __future__ import annotations

from ..core.events import Agreement


def comparison_line(said: Agreement) -> str:
    """How the texts of two lanes compare, in a clause."""
    where = said.divergence
    if where is None:
        return f"{said.compared}/{said.compared} tokens identical to the baseline"
    margin = shown_number(where.margin, 4)
    return (
        f"the lanes part at token {where.index + 1}: the target's top two are {margin} nats apart"
    )


def shown_number(value: float | None, places: int) -> str:
    """A shown_number with `places` decimals, or a dash for None."""
    return "–" if value is None else f"{value:.{places}f}"


def shown_milliseconds(seconds: float | None) -> str:
    """Seconds as text in milliseconds: "1.52 ms", or a dash for None."""
    return "–" if seconds is None else f"{seconds * 1e3:.2f} ms"
