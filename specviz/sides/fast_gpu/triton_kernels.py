"""The kernels of `triton_pass.py`, in Triton's language.

Every kernel works on 16 rows, one for each token of a pass; a row whose position is -1 is dead: it
reads nothing, and nothing of it is stored. Each loop goes through its inputs in a fixed order, so
the bits of a row depend neither on its neighbours nor on how many of them live. Numbers are rounded
to the model's dtype where transformers' modules round.

Arguments in capitals are known when a kernel is compiled. EXACT: whether products take fp32 inputs,
as those of fp32 models do, and all of them in Triton's interpreter, which has no bf16 arithmetic.
KIND: how a matrix is stored (`triton_weights.py`): a number for each weight, or codes with scales.
"""

import triton
import triton.language as tl

from . import triton_weights

ROWS = tl.constexpr(triton_weights.ROWS)
GROUP = tl.constexpr(triton_weights.GROUP)
SUPER = tl.constexpr(triton_weights.SUPER)

DENSE = tl.constexpr(triton_weights.KINDS[None])
Q8_0 = tl.constexpr(triton_weights.KINDS["Q8_0"])
Q4_0 = tl.constexpr(triton_weights.KINDS["Q4_0"])
Q4_K = tl.constexpr(triton_weights.KINDS["Q4_K"])


@triton.jit(
    do_not_specialize=["count", "capacity"],
    do_not_specialize_on_alignment=["ids", "positions"],  # which may be parts of other tensors
)
def embed(
    ids,  # int64 [count]
    positions,  # int64 [count]
    table,  # [vocab, WIDTH]
    x,  # out: [16, WIDTH]
    live_positions,  # out: int64 [16], -1 for dead rows
    counters,  # out: int32 [COUNTERS], set to 0
    count,
    capacity,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    COUNTERS: tl.constexpr,
):
    """The embeddings of the tokens, the positions of all rows, and counters that begin at 0."""
    part = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    in_use = rows < count
    position = tl.load(positions + rows, mask=in_use, other=-1)
    token = tl.load(ids + rows, mask=in_use, other=0)
    columns = part * BLOCK + tl.arange(0, BLOCK)
    inside = (columns < WIDTH)[None, :] & in_use[:, None]
    values = tl.load(table + token[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)
    tl.store(x + rows[:, None] * WIDTH + columns[None, :], values, mask=inside)
    if part == 0:
        tl.store(live_positions + rows, tl.where(position < capacity, position, -1))
        for first in range(0, COUNTERS, BLOCK):
            numbers = first + tl.arange(0, BLOCK)
            tl.store(counters + numbers, tl.zeros((BLOCK,), tl.int32), mask=numbers < COUNTERS)


@triton.jit
def _dot(a, b, sums, EXACT: tl.constexpr):
    if EXACT:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, sums, input_precision="ieee")


@triton.jit
def _weights(
    weight,
    scales,
    factors,
    rows,
    begin,
    dtype: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    KIND: tl.constexpr,
):
    """Weights `begin` to `begin + BLOCK` of each of `rows`, transposed: [BLOCK, rows]."""
    k = begin + tl.arange(0, BLOCK)
    if KIND == DENSE:
        values = tl.load(weight + rows[None, :] * WIDTH + k[:, None])
    elif KIND == Q8_0:
        codes = tl.load(weight + rows[None, :] * WIDTH + k[:, None])
        group = rows[None, :] * (WIDTH // GROUP) + k[:, None] // GROUP
        values = tl.load(scales + group).to(tl.float32) * codes.to(tl.float32)
    else:
        pair = begin // 2 + tl.arange(0, BLOCK // 2)
        both = tl.load(weight + rows[None, :] * (WIDTH // 2) + pair[:, None])
        halves = tl.permute(tl.join(both & 15, both >> 4), (0, 2, 1))
        codes = tl.reshape(halves, (BLOCK, rows.shape[0])).to(tl.float32)
        group = rows[None, :] * (WIDTH // GROUP) + k[:, None] // GROUP
        if KIND == Q4_0:
            values = tl.load(scales + group).to(tl.float32) * (codes - 8.0)
        else:
            # The products are exact, so that the difference is rounded once, fused or not.
            block = rows[None, :] * (WIDTH // SUPER) + k[:, None] // SUPER
            scale = tl.load(factors + 2 * block).to(tl.float32)
            minimum = tl.load(factors + 2 * block + 1).to(tl.float32)
            scale *= tl.load(scales + 2 * group).to(tl.float32)
            minimum *= tl.load(scales + 2 * group + 1).to(tl.float32)
            values = scale * codes - minimum
    return values.to(dtype)


@triton.jit
def _inverse_rms(x, live, WIDTH: tl.constexpr, BLOCK: tl.constexpr, EPS: tl.constexpr):
    """The factor of RMS norm for each row of `x` [16, WIDTH]: fp32 [16]."""
    rows = tl.arange(0, ROWS)
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(0, WIDTH, BLOCK):
        k = begin + tl.arange(0, BLOCK)
        values = tl.load(x + rows[:, None] * WIDTH + k[None, :], mask=live[:, None], other=0.0)
        values = values.to(tl.float32)
        squares += values * values
    return tl.rsqrt(tl.sum(squares, 1) / WIDTH + EPS)


@triton.jit
def _normed_product(
    x,
    norm,
    weight,
    scales,
    factors,
    matrix_rows,
    live,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    EPS: tl.constexpr,
    KIND: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Multiply the RMS norm of `x` [16, WIDTH] by some rows of a matrix: fp32 [16, matrix_rows]."""
    dtype: tl.constexpr = x.dtype.element_ty
    rows = tl.arange(0, ROWS)
    scale = _inverse_rms(x, live, WIDTH, BLOCK, EPS)
    sums = tl.zeros((ROWS, matrix_rows.shape[0]), tl.float32)
    for begin in range(0, WIDTH, BLOCK):
        k = begin + tl.arange(0, BLOCK)
        values = tl.load(x + rows[:, None] * WIDTH + k[None, :], mask=live[:, None], other=0.0)
        gain = tl.load(norm + k).to(tl.float32)
        normed = (values.to(tl.float32) * scale[:, None]).to(dtype).to(tl.float32) * gain[None, :]
        w = _weights(weight, scales, factors, matrix_rows, begin, dtype, WIDTH, BLOCK, KIND)
        sums = _dot(normed.to(dtype), w, sums, EXACT)
    return sums


@triton.jit
def _halves(tile, HALF: tl.constexpr):
    """The first and the last HALF columns of a tile [16, 2 * HALF]."""
    return tl.split(tl.permute(tl.reshape(tile, (ROWS, 2, HALF)), (0, 2, 1)))


@triton.jit(do_not_specialize=["capacity"])
def queries_keys_values(
    x,  # [16, WIDTH]
    norm,  # [WIDTH]
    weight,  # [(HEADS + 2 * KV_HEADS) * HEAD, WIDTH]: queries, keys, values
    scales,
    factors,
    bias,  # [(HEADS + 2 * KV_HEADS) * HEAD]
    query_norm,  # [HEAD], as is key_norm
    key_norm,
    cos,  # [capacity, HEAD / 2], as is sin
    sin,
    positions,  # int64 [16]
    queries,  # out: [16, HEADS * HEAD]
    keys,  # out: [KV_HEADS, capacity, HEAD], as are values
    values,
    capacity,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    HALF: tl.constexpr,  # pairs of a tile
    BLOCK: tl.constexpr,
    EPS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_NORMS: tl.constexpr,
    KIND: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Norm, the three products, norms of heads, rotation; keys and values go into the cache.

    A tile holds rotary pairs: numbers of the first half of a head, and their partners.
    """
    PAIRS: tl.constexpr = HEAD // 2
    TILES: tl.constexpr = (PAIRS + HALF - 1) // HALF
    head = tl.program_id(0) // TILES
    begin = (tl.program_id(0) % TILES) * HALF
    rows = tl.arange(0, ROWS)
    position = tl.load(positions + rows)
    live = position >= 0
    dtype: tl.constexpr = x.dtype.element_ty

    column = tl.arange(0, 2 * HALF)
    pair = tl.minimum(begin + column % HALF, PAIRS - 1)
    number = (column // HALF) * PAIRS + pair  # within the head
    matrix_row = (head * HEAD + number).to(tl.int64)
    sums = _normed_product(
        x, norm, weight, scales, factors, matrix_row, live, WIDTH, BLOCK, EPS, KIND, EXACT
    )
    if HAS_BIAS:
        sums += tl.load(bias + matrix_row).to(tl.float32)[None, :]
    sums = sums.to(dtype).to(tl.float32)
    if HAS_NORMS:
        # Here a tile is a head.
        inside = begin + column % HALF < PAIRS
        squares = tl.where(inside[None, :], sums * sums, 0.0)
        inverse = tl.rsqrt(tl.sum(squares, 1) / HEAD + EPS)
        query_gain = tl.load(query_norm + number).to(tl.float32)
        key_gain = tl.load(key_norm + number).to(tl.float32)
        gain = tl.where(head < HEADS, query_gain, key_gain)
        normed = (sums * inverse[:, None]).to(dtype).to(tl.float32) * gain[None, :]
        normed = normed.to(dtype).to(tl.float32)
        sums = tl.where(head < HEADS + KV_HEADS, normed, sums)

    first, second = _halves(sums, HALF)
    columns = begin + tl.arange(0, HALF)
    inside = (columns < PAIRS)[None, :] & live[:, None]
    rotates = inside & (tl.full((1, HALF), head, tl.int32) < HEADS + KV_HEADS)
    angle = position[:, None] * PAIRS + columns[None, :]
    cosine = tl.load(cos + angle, mask=rotates, other=1.0).to(tl.float32)
    sine = tl.load(sin + angle, mask=rotates, other=0.0).to(tl.float32)
    # Both products are rounded before they are added, as in transformers' modules.
    first_cosine = (first * cosine).to(dtype).to(tl.float32)
    first_sine = (first * sine).to(dtype).to(tl.float32)
    second_cosine = (second * cosine).to(dtype).to(tl.float32)
    second_sine = (second * sine).to(dtype).to(tl.float32)
    rotated_first = (first_cosine - second_sine).to(dtype)
    rotated_second = (second_cosine + first_sine).to(dtype)

    if head < HEADS:
        query = rows[:, None] * (HEADS * HEAD) + head * HEAD + columns[None, :]
        tl.store(queries + query, rotated_first, mask=inside)
        tl.store(queries + query + PAIRS, rotated_second, mask=inside)
    else:
        kv_head = ((head - HEADS) % KV_HEADS).to(tl.int64)
        offsets = (kv_head * capacity + position[:, None]) * HEAD + columns[None, :]
        if head < HEADS + KV_HEADS:
            tl.store(keys + offsets, rotated_first, mask=inside)
            tl.store(keys + offsets + PAIRS, rotated_second, mask=inside)
        else:
            tl.store(values + offsets, rotated_first, mask=inside)
            tl.store(values + offsets + PAIRS, rotated_second, mask=inside)


@triton.jit(do_not_specialize=["capacity", "chunks"])
def attend(
    queries,  # [16, KV_HEADS * SHARING * HEAD]
    keys,  # [KV_HEADS, capacity, HEAD], as are values
    values,
    positions,  # int64 [16]
    partial,  # scratch: fp32 [programs, chunks, M, WIDE]
    maxima,  # scratch: fp32 [programs, chunks, M], as are sums
    sums,
    counters,  # int32 [programs], 0 before and after
    attended,  # out: [16, KV_HEADS * SHARING * HEAD]
    capacity,
    chunks,
    KV_HEADS: tl.constexpr,
    SHARING: tl.constexpr,  # query heads that share a head of keys
    TOGETHER: tl.constexpr,  # query heads of a program
    HEAD: tl.constexpr,
    WIDE: tl.constexpr,  # HEAD or the next power of two
    CHUNK: tl.constexpr,
    SCALE: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Compute attention of some heads over one chunk of the cache. The last program to end among
    those of the same heads merges their chunks, in the order of the cache."""
    M: tl.constexpr = ROWS * TOGETHER
    PARTS: tl.constexpr = (SHARING + TOGETHER - 1) // TOGETHER
    program = tl.program_id(0)
    chunk = tl.program_id(1)
    last = tl.max(tl.load(positions + tl.arange(0, ROWS)), 0).to(tl.int32)
    used = (last + CHUNK) // CHUNK  # chunks that a row sees
    if chunk < used:
        kv_head = (program // PARTS).to(tl.int64)
        row = tl.arange(0, M)
        token = row % ROWS
        shared_head = (program % PARTS) * TOGETHER + row // ROWS
        position = tl.load(positions + token)
        live = (position >= 0) & (shared_head < SHARING)
        number = tl.arange(0, WIDE)
        stored = live[:, None] & (number < HEAD)[None, :]
        head = kv_head * SHARING + shared_head
        offsets = (token[:, None] * (KV_HEADS * SHARING) + head[:, None]) * HEAD + number[None, :]
        query = tl.load(queries + offsets, mask=stored, other=0.0)

        seen = chunk * CHUNK + tl.arange(0, CHUNK)
        cached = (kv_head * capacity + seen) * HEAD
        # A position that no row attends to may hold anything, and 0 times NaN is NaN.
        filled = (seen <= last)[:, None] & (number < HEAD)[None, :]
        key = tl.load(keys + cached[:, None] + number[None, :], mask=filled, other=0.0)
        scores = _dot(query, tl.trans(key), tl.zeros((M, CHUNK), tl.float32), EXACT) * SCALE
        scores = tl.where(seen[None, :] <= position[:, None], scores, float("-inf"))
        maximum = tl.max(scores, 1)
        weights = tl.exp(scores - tl.where(maximum == float("-inf"), 0.0, maximum)[:, None])
        value = tl.load(values + cached[:, None] + number[None, :], mask=filled, other=0.0)
        weighted = _dot(
            weights.to(values.dtype.element_ty), value, tl.zeros((M, WIDE), tl.float32), EXACT
        )

        slot = (program * chunks + chunk) * M + row
        tl.store(maxima + slot, maximum, mask=live)
        tl.store(sums + slot, tl.sum(weights, 1), mask=live)
        tl.store(partial + slot[:, None] * WIDE + number[None, :], weighted, mask=stored)
        tl.debug_barrier()  # all threads have stored before one of them says so
        arrived = tl.atomic_add(counters + program, 1, sem="acq_rel")
        if arrived == used - 1:
            tl.store(counters + program, 0)
            largest = tl.full((M,), float("-inf"), tl.float32)
            for index in range(0, used):
                line = (program * chunks + index) * M + row
                chunk_maxima = tl.load(maxima + line, mask=live, other=0.0, cache_modifier=".cg")
                largest = tl.maximum(largest, chunk_maxima)
            total = tl.zeros((M,), tl.float32)
            merged = tl.zeros((M, WIDE), tl.float32)
            for index in range(0, used):
                line = (program * chunks + index) * M + row
                chunk_maxima = tl.load(maxima + line, mask=live, other=0.0, cache_modifier=".cg")
                share = tl.exp(chunk_maxima - largest)  # 0 for a chunk that the row does not see
                total += share * tl.load(sums + line, mask=live, other=1.0, cache_modifier=".cg")
                part = tl.load(
                    partial + line[:, None] * WIDE + number[None, :],
                    mask=stored,
                    other=0.0,
                    cache_modifier=".cg",
                )
                merged += share[:, None] * part
            result = (merged / total[:, None]).to(attended.dtype.element_ty)
            tl.store(attended + offsets, result, mask=stored)


@triton.jit
def _add(sums, bias, x, offsets, columns, stored, HAS_BIAS: tl.constexpr):
    """Add a product with its bias to the states."""
    if HAS_BIAS:
        sums += tl.load(bias + columns).to(tl.float32)[None, :]
    dtype: tl.constexpr = x.dtype.element_ty
    states = tl.load(x + offsets, mask=stored, other=0.0).to(tl.float32)
    states += sums.to(dtype).to(tl.float32)
    tl.store(x + offsets, states.to(dtype), mask=stored)


@triton.jit
def add_product(
    inputs,  # [16, WIDTH]
    weight,  # [OUTPUTS, WIDTH]
    scales,
    factors,
    bias,  # [OUTPUTS]
    positions,  # int64 [16]
    x,  # in and out: [16, OUTPUTS]
    partial,  # scratch: fp32 [SPLITS, 16, OUTPUTS]
    counters,  # int32 [tiles], 0 before and after
    WIDTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    KIND: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Add a linear layer's outputs to the states. If outputs are few, SPLITS programs share their
    inputs, and the last one to end adds their sums in the order of the inputs.
    """
    PART: tl.constexpr = (WIDTH // BLOCK + SPLITS - 1) // SPLITS * BLOCK
    tile = tl.program_id(0)
    split = tl.program_id(1)
    rows = tl.arange(0, ROWS)
    live = tl.load(positions + rows) >= 0
    columns = tile * COLUMNS + tl.arange(0, COLUMNS)
    stored = live[:, None] & (columns < OUTPUTS)[None, :]
    columns = tl.minimum(columns, OUTPUTS - 1)
    matrix_rows = columns.to(tl.int64)
    dtype: tl.constexpr = inputs.dtype.element_ty
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(split * PART, tl.minimum(split * PART + PART, WIDTH), BLOCK):
        k = begin + tl.arange(0, BLOCK)
        values = tl.load(inputs + rows[:, None] * WIDTH + k[None, :], mask=live[:, None], other=0.0)
        w = _weights(weight, scales, factors, matrix_rows, begin, dtype, WIDTH, BLOCK, KIND)
        sums = _dot(values, w, sums, EXACT)
    offsets = rows[:, None] * OUTPUTS + columns[None, :]
    if SPLITS == 1:
        _add(sums, bias, x, offsets, columns, stored, HAS_BIAS)
    else:
        tl.store(partial + split * (ROWS * OUTPUTS) + offsets, sums, mask=stored)
        tl.debug_barrier()  # all threads have stored before one of them says so
        arrived = tl.atomic_add(counters + tile, 1, sem="acq_rel")
        if arrived == SPLITS - 1:
            tl.store(counters + tile, 0)
            total = tl.zeros((ROWS, COLUMNS), tl.float32)
            for index in range(SPLITS):
                part = partial + index * (ROWS * OUTPUTS) + offsets
                total += tl.load(part, mask=stored, other=0.0, cache_modifier=".cg")
            _add(total, bias, x, offsets, columns, stored, HAS_BIAS)


@triton.jit
def gate_and_up(
    x,  # [16, WIDTH]
    norm,  # [WIDTH]
    weight,  # [2 * OUTPUTS, WIDTH]: gate, up
    scales,
    factors,
    bias,  # [2 * OUTPUTS]
    positions,  # int64 [16]
    activated,  # out: [16, OUTPUTS]
    WIDTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    HALF: tl.constexpr,  # outputs of a tile
    BLOCK: tl.constexpr,
    EPS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    KIND: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Norm, both products, and SiLU of the one times the other."""
    begin = tl.program_id(0) * HALF
    rows = tl.arange(0, ROWS)
    live = tl.load(positions + rows) >= 0
    column = tl.arange(0, 2 * HALF)
    output = tl.minimum(begin + column % HALF, OUTPUTS - 1)
    matrix_rows = ((column // HALF) * OUTPUTS + output).to(tl.int64)
    sums = _normed_product(
        x, norm, weight, scales, factors, matrix_rows, live, WIDTH, BLOCK, EPS, KIND, EXACT
    )
    if HAS_BIAS:
        sums += tl.load(bias + matrix_rows).to(tl.float32)[None, :]
    dtype: tl.constexpr = x.dtype.element_ty
    gate, up = _halves(sums.to(dtype).to(tl.float32), HALF)
    silu = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    columns = begin + tl.arange(0, HALF)
    stored = live[:, None] & (columns < OUTPUTS)[None, :]
    offsets = rows[:, None] * OUTPUTS + columns[None, :]
    tl.store(activated + offsets, (silu * up).to(dtype), mask=stored)


@triton.jit
def output_logits(
    x,  # [16, WIDTH]
    norm,  # [WIDTH]
    weight,  # [OUTPUTS, WIDTH]
    scales,
    factors,
    bias,  # [OUTPUTS]
    positions,  # int64 [16]
    logits,  # out: fp32 [16, OUTPUTS]
    WIDTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    EPS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    KIND: tl.constexpr,
    EXACT: tl.constexpr,
):
    """The last norm and the output layer."""
    rows = tl.arange(0, ROWS)
    live = tl.load(positions + rows) >= 0
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    stored = live[:, None] & (columns < OUTPUTS)[None, :]
    columns = tl.minimum(columns, OUTPUTS - 1)
    sums = _normed_product(
        x,
        norm,
        weight,
        scales,
        factors,
        columns.to(tl.int64),
        live,
        WIDTH,
        BLOCK,
        EPS,
        KIND,
        EXACT,
    )
    if HAS_BIAS:
        sums += tl.load(bias + columns).to(tl.float32)[None, :]
    offsets = rows[:, None].to(tl.int64) * OUTPUTS + columns[None, :]
    tl.store(logits + offsets, sums.to(x.dtype.element_ty).to(tl.float32), mask=stored)
