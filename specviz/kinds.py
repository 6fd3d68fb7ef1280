"""Put the drafters, verdicts and engines of this package into the core's registry.

Page, sweep, doctor, command line, benchmark and JavaScript read the registry; only the sides know
more about a kind than its record says. `register` adds a kind of your own, and so does an entry
point of an installed package in the group "specviz.drafters" or "specviz.verdicts"
(`core.plugins`).
"""

from __future__ import annotations

from .core import registry
from .core.basic_kinds import EAGER, NO_DRAFTS, TOKEN_RULE
from .sides.early_exit.kind import EARLY_EXIT
from .sides.fast_cpu.kind import COMPILED
from .sides.fast_gpu.kind import STATIC
from .sides.heads.kind import HEAD, NGRAM_HEAD
from .sides.lookup.kind import NGRAM, SUFFIX
from .sides.model.kind import MODEL
from .sides.served.kind import SERVER
from .sides.verdicts.block import BLOCK
from .sides.verdicts.exact_match import EXACT_MATCH
from .sides.verdicts.typical import TYPICAL

DRAFTERS = (MODEL, NGRAM, SUFFIX, EARLY_EXIT, HEAD, NGRAM_HEAD, NO_DRAFTS)

VERDICTS = (TOKEN_RULE, BLOCK, EXACT_MATCH, TYPICAL)

ENGINES = (STATIC, COMPILED, EAGER, SERVER)
"""In the order in which they are tried."""


def fill_registry() -> None:
    """Fill the registry with this package's kinds, and let it find those of other packages on
    demand."""
    registry.known_drafters.update({kind.name: kind for kind in DRAFTERS})
    registry.known_verdicts.update({kind.name: kind for kind in VERDICTS})
    registry.known_engines.extend(ENGINES)
    registry.find_more(_find_plugins)


def _find_plugins() -> None:
    from .core.plugins import load_plugins  # a name of ours needs no other package

    load_plugins()
