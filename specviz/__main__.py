"""`python -m specviz VERB`, and the command `specviz`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .errors import SpecvizError
from .options import to_the_output


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one verb; returns the exit status. A user's mistake is one line on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with to_the_output():
            return _do(words)
    except SpecvizError as error:
        print(f"specviz: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, BrokenPipeError):
        return 130


def _do(words: Sequence[str]) -> int:
    if words[:1] == ["page"]:
        # Without the other verbs, which bring torch: only the models' process needs it.
        from . import serve

        serve.serve_page(serve.parsed(words[1:], "specviz page"))
        return 0
    from .cli import do_verb

    return do_verb(words)


if __name__ == "__main__":
    sys.exit(main())
