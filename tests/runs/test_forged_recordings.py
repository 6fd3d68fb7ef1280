"""A recording that contradicts itself is refused, whatever its digest says."""

from __future__ import annotations

import pytest
from forged_recordings import FORGED, forged
from toy_recordings import sentence


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_recording_is_refused_with_its_sentence(name: str):
    recording, edit, fragment = FORGED[name]
    assert fragment in sentence(forged(recording, edit))
