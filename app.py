"""The page, here and as a Hugging Face Space: `python app.py`."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
# Idle worker threads must not spin on cores that the other lane or the browser needs.
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import logging

from specviz.worker import ProcessWorker

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
logging.getLogger("httpx").setLevel(logging.WARNING)

# The models' process takes as long to start as the page does: first of all, so that both do at
# the same time.
worker = ProcessWorker()
worker.start()

from specviz.page import build_page, launch_options  # noqa: E402

demo = build_page(worker)


def main() -> None:
    """Serve the page where GRADIO_SERVER_NAME and GRADIO_SERVER_PORT say."""
    demo.launch(**launch_options())


if __name__ == "__main__":
    main()
