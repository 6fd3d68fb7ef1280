"""Weights of few bits: kinds of blocks, and compiled code that unpacks, packs and reorders them.

    unpacking.py    from blocks to numbers and back, on torch's tensors
    products.py     products of rows with weights in the file's order, in fp32
    tiles.py        the order of blocks for integer products (`sides/fast_cpu/`)
    packing.py      blocks of a draft
    vector.py       operations on vectors and matrices
    blocks.py       each kind of block as vectors of fp32
    ir.py           building blocks of LLVM's language
    stale_code.py   removal of compiled code that is out of date

Each module uses those below it.
"""

from pathlib import Path

from .stale_code import forget_stale_code

HERE = Path(__file__).resolve().parent

forget_stale_code(HERE)
