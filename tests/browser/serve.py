"""The page over a small random pair, for the browser tests: python serve.py PORT."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from toys import byte_level, llama, relative  # noqa: E402

from specviz import Pair  # noqa: E402
from specviz.page import build_page, launch_options  # noqa: E402


def small_pair(name: str) -> Pair:
    """A target of a few milliseconds per pass and a draft that agrees with it now and then."""
    tokenizer = byte_level(300)
    target = llama(300, hidden_size=256, intermediate_size=512, num_hidden_layers=6)
    return Pair(target=target, draft=relative(target, noise=0.15), tokenizer=tokenizer, name=name)


if __name__ == "__main__":
    build_page(load=small_pair).launch(
        server_name="127.0.0.1", server_port=int(sys.argv[1]), quiet=True, **launch_options()
    )
