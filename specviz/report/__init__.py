"""What is derived from a trace: metrics, charts, tables, pages, and the equivalence test."""

from .._lazy import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "Metrics": "metrics",
        "compute_metrics": "metrics",
        "figures": "charts",
        "standalone_html": "html",
    },
)
