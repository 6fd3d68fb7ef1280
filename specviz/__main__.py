"""`python -m specviz VERB`, and the command `specviz`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .cli import do_verb
from .errors import SpecvizError
from .options import to_the_output


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one verb; returns the exit status. A user's mistake is one line on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with to_the_output():
            return do_verb(words)
    except SpecvizError as error:
        print(f"specviz: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, BrokenPipeError):
        return 130


if __name__ == "__main__":
    sys.exit(main())
