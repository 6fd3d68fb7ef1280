"""Units of tests, and their order. One process runs all tests of a unit: a file, or several files
that share a page or processes of models."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from places import HELPERS

BROWSER = HELPERS.parent / "browser"

OWN_PAGES = {
    "test_below_a_path",
    "test_choosing_pairs",
    "test_injection",
    "test_lent_gpu",
    "test_page_faults",
    "test_real_journey",
}
"""Browser tests that start their own pages; the other ones of a folder share a page, and are one
unit, which has the folder's name."""

FORKING = {"test_faults", "test_worker"}
"""Files that share the processes which they fork; they are the unit "worker"."""

UNCOMPILED = {
    "test_api_reference",
    "test_checksums",
    "test_deploy",
    "test_layout",
    "test_palette",
    "test_rooms",
    "test_sampling",
    "test_sentences",
    "test_settings",
    "test_spec",
    "test_table",
    "test_wheel",
}
"""Files that need no compiled passes. They start first, while the passes are compiled."""

ALL_PRODUCTS = {
    "test_gguf",
    "test_gguf_against_llama_cpp",
    "test_integer_products",
    "test_local_models",
    "test_packed",
    "test_packed_model",
    "test_packed_weights",
    "test_quantize",
    "test_read_weights",
    "test_remembered_trial",
    "test_verbs_on_files",
}
"""Files that need the products of all kinds of weights, which are compiled after the passes."""

LONG = (
    "recorded",
    "browser",
    "test_choosing_pairs",
    "test_soak",
    "test_audit",
    "test_injection",
    "test_real_journey",
    "test_real_pair",
    "worker",
    "test_gguf",
    "test_wheel",
    "test_families",
    "test_exactness",
    "test_running_states",
    "test_page_faults",
    "test_zerogpu",
    "test_static",
    "test_gguf_tokenizers",
    "test_triton",
    "test_triton_compiled",
    "test_api",
    "test_packed",
    "test_packed_weights",
    "test_visitors",
    "test_security",
    "test_stand_in_device",
    "test_local_models",
    "test_gguf_against_llama_cpp",
    "test_strangers",
    "test_rerun",
    "test_table",
    "test_doctor_agrees",
    "test_pure_javascript",
    "test_lent_gpu",
)
"""The units that take longest, the longest first. They start next, so that at the end no process
works alone."""


@cache
def unit_of(path: Path) -> str:
    """The name of the unit of a test file."""
    shares_page = path.is_relative_to(BROWSER) and path.stem not in OWN_PAGES
    if shares_page or path.stem in FORKING:
        return path.parent.name
    return path.stem


def unit_order(unit: str) -> tuple[bool, int, str]:
    """The sort key of a unit."""
    place = LONG.index(unit) if unit in LONG else len(LONG)
    return unit not in UNCOMPILED, place, unit
