"""Load and examine pairs whose target is on a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..core.pair import Pair
from ..files.devices import best_device
from ..files.findings import Finding, Findings, good, stopping, warning
from ..files.hub import find_source
from ..files.local_paths import local_file
from ..files.progress import Progress
from ..files.source import ModelSource
from ..files.weights import read_tokenizer
from ..remote.address import server_address
from ..sides.served.target import RemoteTarget, remote_target
from ..sides.watched.watching import tells_steps
from .models import load_models, read_file
from .quantize import load_quantized
from .report import Report, shown_model
from .request import LoadRequest
from .spec import ModelsSpec, ServedSpec, WatchedSpec
from .watched import load_watched


def load_served(spec: ServedSpec, request: LoadRequest) -> Pair:
    """Load a pair of a target on a server and a local draft with the same tokenizer. The pair's
    name contains no address. Raises `PairError` and `ServerError`.
    """
    if request.on_progress is not None:
        request.on_progress(Progress("querying the target's server"))
    target, source, tokenizer = served_target(spec)
    options = request.options[1]
    if local_file(spec.draft) is None:
        options = replace(options, device=request.device or best_device())
        draft = load_quantized(source, options, request.on_progress)
    else:
        alone = request._replace(options=(options, options))
        draft = load_models(ModelsSpec(spec.draft, None), alone).target
    return Pair(target, draft, tokenizer, name=f"{target.name_or_path}+{source.shown}")


def served_target(spec: ServedSpec) -> tuple[RemoteTarget, ModelSource, Any]:
    """The target of a served pair, its draft's source, and the tokenizer that both must share.

    Raises `PairError` and `ServerError`.
    """
    if local_file(spec.draft) is None:
        source = find_source(spec.draft)
        tokenizer = read_tokenizer(source)
    else:
        metadata = read_file(spec.draft)
        source = metadata.source
        tokenizer = metadata.tokenizer
    address = server_address(spec.target.url)
    target = remote_target(address, spec.target.model, tokenizer)
    return target, source, tokenizer


def examine_server(spec: ServedSpec | WatchedSpec) -> Report:
    """Examine a target on a server with a local draft, or a server that speculates by itself."""
    findings: list[Finding] = []
    if isinstance(spec, ServedSpec):
        with stopping("server", findings):
            findings += served_findings(spec)
        return Report(spec.target.model, shown_model(spec.draft), tuple(findings))
    with stopping("server", findings):
        findings += watched_findings(spec)
    return Report(spec.engine.model, None, tuple(findings))


def watched_findings(spec: WatchedSpec) -> Findings:
    """Findings about a server that speculates by itself. Raises `PairError` and `ServerError`."""
    pair = load_watched(spec)
    steps_are_told = tells_steps(pair.stream, pair.settings())
    software = pair.stream.identity.software
    yield good("server", f"{software} answers; its own speculation is watched.")
    flag = "start vLLM with --per-request-spec-decode-metrics detailed"
    if steps_are_told:
        yield good("steps", "the server reports what each of its steps drafts and accepts.")
    else:
        yield warning("steps", f"the server does not report what its steps draft: {flag}.")
    if pair.alone:
        yield good("baseline", f"{pair.alone.identity.software} answers for the target alone.")
    else:
        yield warning("baseline", "without a second server as the baseline there is no ratio.")
    times = "times are the client's, from chunk to chunk: they include the network and other users."
    yield warning("times", times)


def served_findings(spec: ServedSpec) -> Findings:
    """Findings about a target on a server. Raises `PairError` and `ServerError`."""
    target, source, _tokenizer = served_target(spec)
    context = target.identity.context
    length = f"of {context:,} tokens" if context else "of unknown length"
    yield good("server", f"{target.identity.software} answers, with a context {length}.")
    yield good("tokenizer", f"the server encodes and decodes text as {source.shown} does.")
    if target.listed >= target.vocab:
        exact = "the server returns complete distributions: every setting is exact."
        yield good("distributions", exact)
    else:
        sentence = (
            f"the server lists {target.listed} log-probabilities: greedy runs are exact, and "
            f"others with top_k from 1 to {target.listed}"
        )
        if target.draws:
            sentence += ", or with the verdict token, where the server draws and beta is unknown"
        yield warning("distributions", f"{sentence}.")
    yield warning(
        "times",
        "times are those of requests: they include the network, the server's queue and its other "
        "users.",
    )
