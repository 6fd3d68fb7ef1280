"""Which drafter and which gamma to deploy, and whether to speculate at all: measured sweeps.

`sweep.sweep(pair, request, stop)` yields events until the sweep ends or `stop()` is true. It is a
loop around `Sweep(request)`, which rests between pieces: `advance(pair)` does one piece and yields
its events, `is_done` tells whether one is left, `result()` is what is known so far. A `Sweep` holds
only plain data and pickles, so that it can wait while the models' process serves somebody else.
`figures.figure_specs(result, theme)` gives the charts as JSON for Plotly.
"""

from ..._lazy import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "Sweep": "sweep",
        "SweepRequest": "types",
        "SweepResult": "types",
        "figure_specs": "figures",
    },
)
