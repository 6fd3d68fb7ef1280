"""The page, here and as a Hugging Face Space: `python app.py`, or with `--port 7861`."""

import sys

from specviz.serve import launch, one_sentence, parsed, start_page, take

with one_sentence():
    if __name__ == "__main__":
        take(parsed(sys.argv[1:], "app.py"))
    worker, demo = start_page()
    if __name__ == "__main__":
        launch(demo)
