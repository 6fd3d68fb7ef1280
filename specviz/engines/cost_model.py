"""What a pass of a model should cost, from its size alone.

A seeded run must repeat, and how many tokens its rounds draft decides which random numbers are
drawn: whatever chooses that number may look at sizes and verdicts, but never at a clock. So a
pass of few tokens is priced at the bytes of weights that it reads, plus what its calls cost,
counted as the bytes that could be read in the meantime.
"""

from __future__ import annotations

from typing import Any

import torch

from ..models.sizes import pass_bytes
from ..models.truncated import truncated_model

# Bytes read in the time of one module's call, by device type: half an order of magnitude is all
# that these can be right to. Forms with a forward of their own make fewer and cheaper calls.
PLAIN_CALL = {"cpu": 2**18, "cuda": 2**26}
OWN_CALL = {"cpu": 2**17, "cuda": 2**23}

# By how much each further token makes a target pass dearer: hardware that waits for its memory
# takes several tokens along for nothing, and a processor's arithmetic is sooner exhausted.
WIDER = {"cpu": 0.07}
WIDER_ELSEWHERE = 0.01


def pass_price(model: Any, form: str, layers: int | None = None) -> float:
    """The price in bytes of a one-token pass, through the first `layers` only if given.

    form: of the engine that runs it. Raises `PairError` where the layers cannot be found.
    """
    model = model if layers is None else truncated_model(model, layers)
    device = torch.device(model.device).type
    calls = sum(1 for module in model.modules() if next(module.children(), None) is None)
    per_call = PLAIN_CALL if form == "eager" else OWN_CALL
    return pass_bytes(model) + calls * per_call.get(device, per_call["cuda"])


def wider_price(device: torch.device) -> float:
    """What one more token adds to a target pass, in passes of one token."""
    return WIDER.get(device.type, WIDER_ELSEWHERE)
