"""Code compiled from other sources is not used."""

from __future__ import annotations

from pathlib import Path

from specviz.files.few_bits.stale_code import forget_stale_code


def test_code_is_kept_as_long_as_no_source_changes(tmp_path: Path) -> None:
    kept = tmp_path / "__pycache__" / "a.f-1.py311.nbi"
    source = tmp_path / "b.py"
    source.write_text("x = 1\n")

    def compiled() -> None:
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(b"code of a, with what it calls in b")

    compiled()
    forget_stale_code(tmp_path)
    assert not kept.exists()  # its sources are unknown
    compiled()
    forget_stale_code(tmp_path)
    assert kept.exists()
    source.write_text("x = 2\n")
    forget_stale_code(tmp_path)
    assert not kept.exists()


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "__pycache__"
    kept.write_text("a file where the folder should be")
    forget_stale_code(tmp_path)
    assert kept.is_file()
