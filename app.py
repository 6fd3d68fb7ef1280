"""The page, here and as a Hugging Face Space: `python app.py`."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
# Idle worker threads must not spin on cores that the other lane or the browser needs.
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import logging

from specviz.engine import spare_threads
from specviz.page import build_page, launch_options

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
logging.getLogger("httpx").setLevel(logging.WARNING)

spare_threads()
demo = build_page()


def main() -> None:
    """Serve the page where GRADIO_SERVER_NAME and GRADIO_SERVER_PORT say."""
    demo.launch(**launch_options())


if __name__ == "__main__":
    main()
