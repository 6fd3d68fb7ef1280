"""Running the models: tasks, and workers that run them in this or in another process."""

from .._lazy import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "LocalWorker": "client",
        "ProcessWorker": "client",
        "Worker": "client",
        "Limits": "limits",
    },
)
