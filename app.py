"""The page, here and as a Hugging Face Space: `python app.py`."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
# Idle worker threads must not spin on cores that the other lane or the browser needs.
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from specviz.environment import on_zerogpu
from specviz.logs import set_up_logging
from specviz.worker.client import ProcessWorker, Worker
from specviz.worker.process import end_with_children

set_up_logging()


def start_worker() -> Worker:
    """The worker for the models. Its start takes as long as the page's, so it begins first."""
    if on_zerogpu():
        from specviz.worker.zerogpu import load_pairs

        return load_pairs()
    worker = ProcessWorker()
    worker.start()
    return worker


worker = start_worker()

from specviz.page import build_page, launch_options  # noqa: E402

# On ZeroGPU only this process knows what the lent GPU is like.
demo = build_page(worker, doctor=worker if on_zerogpu() else None)


def main() -> None:
    """Serve the page where GRADIO_SERVER_NAME and GRADIO_SERVER_PORT say."""
    end_with_children()
    demo.launch(**launch_options())


if __name__ == "__main__":
    main()
