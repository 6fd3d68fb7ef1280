"""Models in local folders and on the hub: their files, and what is known before weights are read.
Requests to the hub have a short timeout."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from safetensors import SafetensorError, safe_open

from ..base.environment import T
from ..base.errors import PairError, causes_of
from .local_models import store_of, stored_model
from .local_paths import HUB_ID, local_path
from .source import CachedSource, ModelSource, shown_name

PICKLES = (".bin", ".pt", ".pth", ".ckpt")

TIMEOUT = 4.0  # seconds for the hub to answer; its client would retry for much longer
ANSWER_LIFETIME = 30.0  # seconds for which an answer of the hub is reused


def find_source(name: str) -> ModelSource:
    """The source with this name. Raises `PairError` if the name is neither a folder, nor a hub id,
    nor a model of another program's store."""
    store = store_of(name)
    if store is not None:
        model = stored_model(name)
        if model is None:
            raise PairError(
                f"{shown_name(name)} is not on this machine: 'python -m specviz pairs' lists what "
                f"{store.label} has."
            )
        # The hub's client reads the cache by hub ids, and then reports the revision.
        if model.id is not None:
            return CachedSource(model.id, model.path)
        return ModelSource(str(model.path), model.path)
    path = local_path(name)
    if path is None and not HUB_ID.fullmatch(name):
        raise PairError(general_sentence(shown_name(name)))
    return ModelSource(str(path or name), path)


def hub_is_reachable() -> bool:
    """Whether the hub, or the server that HF_ENDPOINT names, answers within `TIMEOUT` seconds."""
    if constants.HF_HUB_OFFLINE:
        return False
    period = int(time.monotonic() // ANSWER_LIFETIME)
    return _answers(period)


@lru_cache(maxsize=1)
def _answers(_: int) -> bool:
    """Whether the hub answers in this period of `ANSWER_LIFETIME`; the argument is the period's
    number."""
    return _within_timeout(_ask_hub) is not None


def _ask_hub() -> object:
    session = huggingface_hub.utils.get_session()
    return session.head(constants.ENDPOINT, timeout=TIMEOUT)


def _within_timeout(call: Any) -> Any:
    """The result of `call`, or None if it fails or takes more than `TIMEOUT` seconds."""
    # The client's own timeouts do not cover a name server that does not answer.
    result: Any = None

    def ask() -> None:
        nonlocal result
        with contextlib.suppress(Exception):
            result = call()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return result


def hub_files(source: ModelSource) -> dict[str, int] | None:
    """Bytes by the name of each file of a model on the hub; None for a folder, or if the hub does
    not answer."""
    if source.folder is not None or not hub_is_reachable():
        return None
    info = _within_timeout(
        partial(huggingface_hub.model_info, source.name, files_metadata=True, timeout=TIMEOUT)
    )
    if info is None:
        return None
    files = info.siblings or []
    return {file.rfilename: int(file.size or 0) for file in files}


def safe_files(source: ModelSource) -> dict[str, int] | None:
    """The result of `hub_files` for a model that must have safetensors. Raises `PairError` if it
    has none, or if those of a folder are damaged."""
    files = hub_files(source)
    if source.folder is not None:
        folder_weights(source)
    elif not hub_is_reachable():
        cached_weights(source)
    elif files is not None and not any(name.endswith(".safetensors") for name in files):
        raise PairError(no_safetensors(source.shown, set(files)))
    return files


INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"


def cached_weights(source: ModelSource) -> ModelSource:
    """The folder of the hub's cache that holds a model, for when the hub does not answer.

    Raises `PairError` if the cache has the model without all of its weights, after a broken
    download or after single files were read. If the cache has nothing of the model, the source
    stays as it is: the loader raises the error.
    """
    config = huggingface_hub.try_to_load_from_cache(source.name, "config.json")
    if not isinstance(config, str):
        return source
    folder = Path(config).parent
    # A broken link is not a file.
    present = {path.name for path in folder.iterdir() if path.is_file()}
    missing = sorted(_weight_files(source, folder, present) - present)
    if missing and any(name.endswith(PICKLES) for name in present):
        raise PairError(no_safetensors(source.shown, present))
    if missing:
        raise PairError(
            f"the weights of {source.shown} are incomplete on this machine ({missing[0]} is "
            "missing), and the hub does not answer: check the network, and load the model again."
        )
    return CachedSource(source.name, folder)


def _weight_files(source: ModelSource, folder: Path, present: set[str]) -> set[str]:
    """The names of the files with the weights of a cached model. Raises `PairError`."""
    if WHOLE in present or INDEX not in present:
        return {WHOLE}
    try:
        index = json.loads((folder / INDEX).read_text("utf-8"))
        return set(index["weight_map"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise PairError(damaged_sentence(source.shown, INDEX)) from error


@contextlib.contextmanager
def without_token() -> Iterator[None]:
    """Inside the block, no request of this process carries this machine's token, in any thread."""
    before = constants.HF_HUB_DISABLE_IMPLICIT_TOKEN
    constants.HF_HUB_DISABLE_IMPLICIT_TOKEN = True
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_IMPLICIT_TOKEN = before


def failure_sentence(source: ModelSource, error: BaseException) -> str:
    """The sentence about a model that transformers could not read: why, and what to do."""
    shown = source.shown
    folder = source.folder
    text = str(error)
    causes = list(causes_of(error))
    denied = ("gated repo", "401 Client Error", "403 Client Error")
    gated = any(isinstance(cause, GatedRepoError) for cause in causes)
    if not gated and any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        return (
            f"the hub has no model {shown} that you can access: check the name, and set HF_TOKEN "
            "if it is private."
        )
    if gated or any(sign in text for sign in denied):
        return gated_sentence(source)
    if isinstance(error, ImportError):
        return f"{shown} needs a package that is not installed: {text.strip().splitlines()[0]}"
    if folder is not None and not (folder / "config.json").is_file():
        return general_sentence(shown)
    if "trust_remote_code" in text or "custom code" in text:
        return (
            f"{shown} needs custom code, which is never run here: choose a model that "
            "transformers supports."
        )
    if any(sign in text for sign in ("Unrecognized", "AutoModelForCausalLM", "not recognize")):
        return (
            f"{shown} is not a causal language model that transformers supports: choose one that "
            "writes text."
        )
    if folder is None and not hub_is_reachable():
        return (
            f"{shown} cannot be loaded, because the hub does not answer and the model is not on "
            "this machine: check the network, or use a local folder."
        )
    damaged_file = folder and _damaged_json(folder)
    if damaged_file:
        return damaged_sentence(shown, damaged_file)
    return general_sentence(shown)


def gated_sentence(source: ModelSource) -> str:
    """The sentence about a gated model: what to do."""
    if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
        return (
            f"{source.shown} is gated, and models that visitors name are loaded without a token "
            "here: choose an open model."
        )
    page = f"{constants.ENDPOINT}/{source.name}"
    return f"{source.shown} is gated: accept its licence on {page}, and set HF_TOKEN."


def damaged_sentence(shown: str, file: str) -> str:
    """The sentence about a damaged file of a model."""
    return f"{shown} has a damaged or incomplete file {file}: download it again."


def _damaged_json(folder: Path) -> str | None:
    """The name of a .json file that does not hold JSON, or None."""
    for path in sorted(folder.glob("*.json")):
        try:
            json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):  # some have thousands of levels
            return path.name
    return None


def general_sentence(shown: str) -> str:
    """The sentence about a failure of unknown cause: what to check."""
    if shown.lower().endswith(".gguf"):
        return f"{shown} cannot be loaded, because there is no such file here: check its path."
    return (
        f"{shown} cannot be loaded: check the name and the network, and that the folder has "
        "config.json, *.safetensors and a tokenizer."
    )


def folder_weights(source: ModelSource) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights in a local folder, by name.

    Raises `PairError` if files are missing or damaged.
    """

    def shape(file: Any, name: str) -> tuple[int, ...]:
        return tuple(file.get_slice(name).get_shape())

    return each_weight(source, shape)


def each_weight(source: ModelSource, read: Callable[[Any, str], T]) -> dict[str, T]:
    """The results of `read` by tensor name, for each tensor in the safetensors of a folder. read:
    takes the open file and the tensor's name. Raises `PairError` if there are no such files, or if
    one is damaged."""
    folder = source.folder
    assert folder is not None
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        names = {path.name for path in folder.iterdir()}
        raise PairError(no_safetensors(source.shown, names))
    values: dict[str, T] = {}
    for path in files:
        try:
            with safe_open(path, "pt") as file:  # checks that the file is whole
                for name in file.offset_keys():
                    values[name] = read(file, name)
        except (OSError, SafetensorError) as error:
            raise PairError(damaged_sentence(source.shown, path.name)) from error
    return values


def no_safetensors(shown: str, files: set[str]) -> str:
    """The sentence about a model without safetensors files. files: the names of its files."""
    if any(name.endswith(PICKLES) for name in files):
        return (
            f"{shown} has its weights only as pickles, which can run arbitrary code when they are "
            "loaded: convert it to safetensors, or choose another model."
        )
    return general_sentence(shown)
