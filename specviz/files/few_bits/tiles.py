"""Blocks of few bits with sixteen outputs side by side, in the order in which integer products
read them.

A tile holds the same bytes as the rows of sixteen outputs, in another order. A block of a GGUF
file is a sequence of elements: scales in fp16, and words of four bytes with the codes of four
inputs. In a tile each element occurs sixteen times, once for each output, so that one vector
register holds the same element of all outputs. The fifth bits of Q5_0 and Q5_1 are reordered
within their word: in the file bit i belongs to input i, in a tile bit j of byte k belongs to input
4 j + k.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .blocks import (
    BLOCK_BYTES,
    BLOCK_WEIGHTS,
    KINDS,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    STEP,
)
from .ir import VECTOR_LENGTH

OUTPUTS = VECTOR_LENGTH  # of a tile: one for each lane of a vector


class Elements(NamedTuple):
    """The numbers of a block's elements in their order: scales, words, and scales again. A scale is
    one unit of two bytes, and a word two."""

    scales: int
    words: int
    last_scales: int = 0


ELEMENTS = {
    Q4_0: Elements(1, 4),
    Q4_1: Elements(2, 4),
    Q5_0: Elements(1, 5),
    Q5_1: Elements(2, 5),
    Q8_0: Elements(1, 8),
    Q4_K: Elements(2, 35),
    Q5_K: Elements(2, 43),
    Q6_K: Elements(0, 52, 1),
}
"""Elements by kind."""

FIFTH_BITS = (Q5_0, Q5_1)
"""Kinds whose first word holds the fifth bits of all codes."""

TILES_IN_STEP = STEP // OUTPUTS

TILES_AT_A_TIME = 64  # of a task for a thread


def tile_bytes(kind: int, width: int) -> int:
    """The bytes of a tile of rows of `width` weights."""
    return OUTPUTS * (width // BLOCK_WEIGHTS[kind]) * BLOCK_BYTES[kind]


def as_tiles(
    kind: str, rows: NDArray[np.uint8], pool: ThreadPoolExecutor | None = None
) -> NDArray[np.uint8]:
    """Convert rows of blocks, [outputs, bytes of a row], to tiles, [tiles, bytes of a tile].

    Extra outputs that fill up the last tile have weights of 0. pool: its threads share the tiles.
    """
    number = KINDS[kind]
    outputs, row_bytes = rows.shape
    count = -(-outputs // OUTPUTS)
    # Only the end needs zeros: the rest is written below.
    tiles = np.empty((count, OUTPUTS * row_bytes), np.uint8)
    tiles[outputs // OUTPUTS :] = 0
    units = BLOCK_BYTES[number] // 2
    source = np.ascontiguousarray(rows).view(np.uint16).reshape(outputs, -1, units)
    target = tiles.view(np.uint16).reshape(count, -1, OUTPUTS * units)
    elements = ELEMENTS[number]

    def write(begin: int) -> None:
        end = begin + TILES_AT_A_TIME
        part = source[begin * OUTPUTS : end * OUTPUTS]
        written = target[begin:end]
        _write_scales(part, 0, elements.scales, written)
        _write_words(part, elements.scales, number in FIFTH_BITS, written.view(np.uint32))
        _write_scales(part, units - elements.last_scales, units, written)

    begins = range(0, count, TILES_AT_A_TIME)
    if pool is not None:
        list(pool.map(write, begins))  # waits, and raises the error of a thread
        return tiles
    for begin in begins:
        write(begin)
    return tiles


def rows_of(kind: str, tiles: NDArray[np.uint8], outputs: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The rows of blocks of some outputs: [len(outputs), bytes of a row]."""
    number = KINDS[kind]
    units = BLOCK_BYTES[number] // 2
    tiles_of_outputs = tiles[outputs // OUTPUTS].view(np.uint16)
    of_outputs = tiles_of_outputs.reshape(len(outputs), -1, OUTPUTS * units)
    lanes = outputs % OUTPUTS
    rows = np.empty((len(outputs), of_outputs.shape[1], units), np.uint16)
    elements = ELEMENTS[number]
    for unit in range(units):
        units_at = _units_in_tile(elements, unit, lanes)
        units_of_rows = np.take_along_axis(of_outputs, units_at[:, None, None], 2)
        rows[:, :, unit] = units_of_rows[:, :, 0]
    if number in FIFTH_BITS:
        word = slice(elements.scales, elements.scales + 2)
        rows[:, :, word] = _in_file_order(rows[:, :, word])
    return rows.view(np.uint8).reshape(len(outputs), -1)


def _units_in_tile(elements: Elements, unit: int, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices in a tile's block of a unit of a row's block, for the outputs of some lanes."""
    words_begin = elements.scales
    words_end = words_begin + 2 * elements.words
    if not words_begin <= unit < words_end:
        return OUTPUTS * unit + lanes
    half = (unit - words_begin) % 2  # of the word
    return OUTPUTS * (unit - half) + 2 * lanes + half


def _in_file_order(words: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Reorder the fifth bits of blocks, [outputs, blocks, 2]: bit 8 k + j of a word becomes bit
    4 j + k, as `_by_words` has it the other way around."""
    in_tile = np.ascontiguousarray(words).view(np.uint8)
    bits = np.unpackbits(in_tile, axis=-1, bitorder="little")
    by_bytes = bits.reshape(*bits.shape[:2], 4, 8)
    in_file = by_bytes.swapaxes(2, 3).reshape(bits.shape)
    return np.packbits(in_file, axis=-1, bitorder="little").view(np.uint16)


@njit(nogil=True, cache=True)
def _write_scales(rows, begin, end, tiles):
    """Copy the units from `begin` to before `end` of rows, [outputs, blocks, units], to tiles,
    [tiles, blocks, units]."""
    for output in range(len(rows)):
        for block in range(rows.shape[1]):
            for unit in range(begin, end):
                index = OUTPUTS * unit + output % OUTPUTS
                tiles[output // OUTPUTS, block, index] = rows[output, block, unit]


@njit(nogil=True, cache=True)
def _write_words(rows, begin, has_fifth_bits, tiles):
    """Copy the words of rows, [outputs, blocks, units], from the unit `begin` on, to tiles,
    [tiles, blocks, words]."""
    count = (rows.shape[2] - begin) // 2
    first = OUTPUTS * begin // 2
    for tile in range(len(tiles)):
        outputs = min(OUTPUTS, len(rows) - tile * OUTPUTS)
        for block in range(rows.shape[1]):
            target = tiles[tile, block]
            for lane in range(outputs):
                source = rows[tile * OUTPUTS + lane, block]
                for word in range(count):
                    low = np.uint32(source[begin + 2 * word])
                    high = np.uint32(source[begin + 2 * word + 1])
                    target[first + OUTPUTS * word + lane] = low | high << np.uint32(16)
                if has_fifth_bits:
                    target[first + lane] = _by_words(target[first + lane])


@njit
def _by_words(word):
    """Reorder 32 bits: bit 4 j + k becomes bit 8 k + j."""
    ordered = np.uint32(0)
    for j in range(8):
        four = (word >> np.uint32(4 * j)) & np.uint32(15)
        spread = (four * np.uint32(0x00204081)) & np.uint32(0x01010101)
        ordered |= spread << np.uint32(j)
    return ordered
