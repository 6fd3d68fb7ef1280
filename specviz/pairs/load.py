"""Loading of pairs by name: each form of a name has a source in the table of `specviz.kinds`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..core.kinds import PairSource, resolved
from ..environment import BUILTIN
from ..kinds import PAIR_SOURCES
from .weights import LoadOptions

if TYPE_CHECKING:
    import torch

    from ..core.protocols import Racing
    from .pair import Pair
    from .progress import Watcher
    from .spec import PairSpec


@dataclass(frozen=True)
class Asked:
    """How somebody wants a pair to be loaded. options: of the target and of the draft. device: None
    is the best one."""

    options: tuple[LoadOptions, LoadOptions]
    device: torch.device | None
    on_progress: Watcher | None


def load_pair(
    name: str = BUILTIN,
    *,
    dtype: str | torch.dtype | None = None,
    quantize: str | None = None,
    draft_quantize: str | None = None,
    device: str | torch.device | None = None,
    on_progress: Watcher | None = None,
) -> Pair:
    """Load the pair with this name: "builtin", a name of the table of pairs, or "TARGET+DRAFT".

    TARGET and DRAFT are hub ids or local folders; "TARGET+none" has no draft model, and in the
    place of a draft there may be an EAGLE-3 head or an assistant of Gemma 4, which becomes the
    pair's `head`, or "mtp" for the target's own multi-token prediction layers. Only
    safetensors files are read, and code of a repository never runs. Gated models need HF_TOKEN.
    "http://HOST:PORT/v1#MODEL+DRAFT" is a target on a server of OpenAI's protocol, such as vLLM,
    with a draft that is loaded here; the key of the server is SPECVIZ_REMOTE_KEY. Without
    "+DRAFT" the server speculates by itself, and what is returned is a `Watched`, which only
    `race` takes. docs/pairs.md has all forms of names.
    dtype: "float32", "bfloat16" or "float16"; None is fp32 on a CPU and the dtype of the
    checkpoint on a GPU. quantize, draft_quantize: "8bit" or "4bit", on a GPU with bitsandbytes.
    device: None is the GPU with the most free memory, several GPUs if one is too small, or the
    CPU if there is no GPU.
    on_progress: called with each new `Progress`, in this thread or in one of the hub's client.
    Raises `PairError` if a model is missing, does not fit into memory, or the two do not match, and
    if a file of the built-in pair is not as it was published.
    """
    loaded = load_any(
        name,
        dtype=dtype,
        quantize=quantize,
        draft_quantize=draft_quantize,
        device=device,
        on_progress=on_progress,
    )
    # A server's name alone makes a `Watched`; whoever writes one passes it to `race`.
    return cast("Pair", loaded)


def load_any(
    pair: PairSpec | str,
    *,
    dtype: str | torch.dtype | None = None,
    quantize: str | None = None,
    draft_quantize: str | None = None,
    device: str | torch.device | None = None,
    on_progress: Watcher | None = None,
) -> Pair | Racing:
    """What a name, parsed or not, stands for, with the options of `load_pair`, which says what is
    raised."""
    if pair != BUILTIN and not hasattr(pair, "source"):
        from .spec import parse_pair  # the built-in pair needs no grammar

        pair = parse_pair(pair)
    asked = Asked((LoadOptions(), LoadOptions()), None, on_progress)
    if any(one is not None for one in (dtype, quantize, draft_quantize, device)):
        from .precision import checked_device, checked_dtype, checked_quantization

        target, draft = (
            LoadOptions(checked_dtype(dtype), checked_quantization(q))
            for q in (quantize, draft_quantize)
        )
        asked = Asked((target, draft), checked_device(device), on_progress)
    loaded: Any = resolved(source_of(pair).load)(pair, asked)
    return cast("Pair | Racing", loaded)


def source_of(pair: PairSpec | str) -> PairSource:
    """The source of what is named, parsed or the built-in pair's name."""
    name = pair if isinstance(pair, str) else pair.source
    return next(one for one in PAIR_SOURCES if one.name == name)
