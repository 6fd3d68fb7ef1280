"""See speculative decoding: a target alone races the same target helped by a draft."""

from .errors import SpecvizError
from .settings import Settings
from .trace import Choice, End, Header, Round, Token, Trace

__version__ = "0.1.0"
__all__ = ["Choice", "End", "Header", "Round", "Settings", "SpecvizError", "Token", "Trace"]
