"""The page, here and as a Hugging Face Space: `python app.py`, or with `--port 7861`."""

import sys

from specviz.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["page", *sys.argv[1:]]))
