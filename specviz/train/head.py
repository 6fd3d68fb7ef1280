"""Training of a head on a target as EAGLE-3 heads are trained: on its own outputs (arXiv
2503.01840).

The labels are the target's whole distributions. In training, the head takes several steps from
each position. Every step but the first reads the head's own output of the step before, as in
drafting: the paper's training-time test. Tokens are those of the text, so that the target's
distribution is known at every step.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..core.layers import watched_model
from ..core.model_facts import text_config
from ..files.checksums import write_checksums
from ..sides.heads.eagle import Head, HeadConfig
from ..sides.heads.untrained import SAVED_FIELDS
from .files import save_array, whole_folder

Reads: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""(rows) -> the target's states, as `StateRows` computes them."""

STEPS = 3  # steps of a chain in training
SHOWN_STEPS = 5  # steps of a chain whose acceptance is reported
STEP_WEIGHT = 0.8  # of each further step's loss, relative to the one before, as in the paper's code


def frequent_tokens(tokens: np.ndarray, vocab: int, count: int) -> Tensor:
    """The `count` most frequent ids of a text, ascending: int64 [count]."""
    counts = np.bincount(tokens, minlength=vocab)
    frequent = np.argsort(-counts, kind="stable")[:count]
    return torch.from_numpy(np.sort(frequent))


class ChainLoss:
    """The loss of a head on rows [rows, planes, length + 1]: ids, marks of those that count, and
    planes that `read` needs. It is the mean KL(target || head), in nats, over the steps of the
    chains that begin at every position; predictions of tokens without a mark do not count.

    The target's probabilities are restricted to the head's tokens and normalised again.
    """

    def __init__(self, target: Any, head: Head, read: Reads, steps: int = STEPS) -> None:
        self._steps = steps
        self._read = read
        embedding = target.get_output_embeddings().weight.detach()
        self._labels_head = embedding[head.targets.to(embedding.device)].to(torch.bfloat16)

    def __call__(self, head: Head, rows: Tensor) -> Tensor:
        total = torch.zeros((), device=rows.device)
        total_weight = 0.0
        chains = _chains(head, rows, self._read, self._steps)
        for step, (hidden, labels) in enumerate(chains):
            if not len(hidden):
                break
            # Logits are large: they are not kept for the gradient but computed again.
            kl = checkpoint(self._kl, head, hidden, labels, use_reentrant=False)
            weight = STEP_WEIGHT**step
            total = total + weight * kl
            total_weight += weight
        return total / max(total_weight, 1e-9)

    def _kl(self, head: Head, hidden: Tensor, labels: Tensor) -> Tensor:
        """The mean KL at n positions. hidden: outputs of the head, [n, width]. labels: the
        target's final states, [n, width]."""
        with torch.autocast(hidden.device.type, dtype=torch.bfloat16):
            log_q = head.logits(hidden).log_softmax(-1)
        target_logits = labels @ self._labels_head.T
        log_p = target_logits.float().log_softmax(-1)
        return nn.functional.kl_div(log_q, log_p, log_target=True, reduction="batchmean")


class StateRows:
    """Reads a target's hidden states. A call takes rows [rows, planes, n], whose first plane holds
    ids. It returns the states that a head reads, [rows, n, len(layers) * width], and the final
    normed ones, [rows, n, width], both bf16."""

    def __init__(self, target: Any, layers: tuple[int, ...]) -> None:
        self._layers = layers
        self._states: dict[int, Tensor] = {}  # number of layers -> [rows, n, width]
        self._target = watched_model(target, layers, self._states.__setitem__)
        self.final = text_config(target).hidden_size
        self.width = len(layers) * self.final

    @torch.no_grad()
    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        ids = rows[:, 0]
        with torch.autocast(ids.device.type, dtype=torch.bfloat16):
            last = self._target.model(input_ids=ids, use_cache=False).last_hidden_state
        states = torch.cat([self._states[n] for n in self._layers], -1)
        return states.to(torch.bfloat16), last.to(torch.bfloat16)


class KeptStates:
    """`StateRows` with files, for rows whose third plane is their number in `rows`: the target
    reads each row once, and not in each epoch. Without room on the disk nothing is kept.

    rows: [rows, 2, n]. folder: holds a file for each row; those of a stopped training are used
    again.
    """

    def __init__(self, reader: StateRows, rows: np.ndarray, folder: Path) -> None:
        self._reader = reader
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        tokens = 0
        for row in rows:
            last_marked = int(row[1].nonzero()[0].max())
            tokens += last_marked + 1
        values_per_token = reader.width + reader.final
        needed_bytes = 2 * tokens * values_per_token
        has_room = shutil.disk_usage(folder).free > 2 * needed_bytes
        has_files = any(folder.iterdir())
        self._keeps = has_files or has_room

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if not self._keeps:
            return self._reader(rows)
        width = self._reader.width
        total_width = width + self._reader.final
        states = rows.new_zeros((len(rows), rows.shape[2], total_width), dtype=torch.bfloat16)
        for index, row in enumerate(rows):
            length = int(row[1].nonzero().max()) + 1
            states[index, :length] = self._states_of(row[:, :length])
        return states[..., :width], states[..., width:]

    def _states_of(self, row: Tensor) -> Tensor:
        """Both kinds of states of one row [3, n], side by side: [n, width + final]. The target
        reads the row if there is no file of it."""
        path = self._folder / f"{int(row[2, 0])}.npy"
        if not path.exists():
            both_kinds = self._reader(row[None])
            states = torch.cat(both_kinds, -1)[0]
            bits = states.cpu().view(torch.int16)  # NumPy has no bf16
            save_array(path, bits.numpy())
        saved_bits = torch.from_numpy(np.load(path))
        return saved_bits.view(torch.bfloat16)


def _chains(head: Head, rows: Tensor, read: Reads, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """For each step of the chains on `rows`: the head's outputs and the target's final states at
    the predictions that count, [positions, width] each."""
    # After the last token that counts, rows are padding.
    is_marked = rows[:, 1].any(0)
    length = int(is_marked.nonzero().max()) + 1
    rows = rows[..., :length]
    ids = rows[:, 0]
    marks = rows[:, 1]
    states, last = read(rows)
    for step, hidden in enumerate(chain_outputs(head, ids, states, steps)):
        # The output at position i of this step predicts token i + 2 + step, which the target's
        # state before this token predicts too.
        first_label = 1 + step
        counted = marks[:, first_label + 1 :].bool()
        n = counted.shape[1]
        outputs = hidden[:, :n]
        labels = last[:, first_label : first_label + n]
        yield outputs[counted], labels[counted]


def chain_outputs(head: Head, ids: Tensor, states: Tensor, steps: int) -> list[Tensor]:
    """The head's outputs at each step of the chains that begin at every position of `ids` [rows, n
    + 1]: [rows, n, width] each. The last `step` positions of a step lack their tokens, and must be
    ignored.

    states: of the target at these positions, [rows, n + 1, ..]. A step attends to the first step's
    keys up to the position where its chain began, and to its own chain.
    """
    n = ids.shape[1] - 1
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        hidden = head.fuse(states[:, :-1])
        past: list[tuple[Tensor, Tensor]] = []
        outputs = []
        for step in range(steps):
            tokens = nn.functional.pad(ids[:, 1 + step :], (0, step))
            embedded = head.embed(tokens)
            angles = head.angles(step, n)
            residual, (q, k, v) = head.midlayer.begin(embedded, hidden, angles)
            groups = q.shape[1] // k.shape[1]
            keys = k.repeat_interleave(groups, 1)
            values = v.repeat_interleave(groups, 1)
            past.append((keys, values))
            hidden = head.midlayer.finish(residual, _attended(q, past))
            outputs.append(hidden)
    return outputs


def _attended(q: Tensor, past: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The attention output of q [rows, heads, n, dim], the last step's queries. It sees the first
    step's positions up to its own, and of each later step only its own position, which is of the
    same chain."""
    (first_keys, first_values), *chain = past
    n = q.shape[2]
    scale = q.shape[-1] ** -0.5
    causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    first_scores = (q @ first_keys.transpose(-1, -2)) * scale
    scores = [first_scores.masked_fill(~causal, -torch.inf)]  # [rows, heads, n, n]
    for keys, _ in chain:
        dot_products = (q * keys).sum(-1, keepdim=True)
        scores.append(dot_products * scale)  # [rows, heads, n, 1]
    all_scores = torch.cat(scores, -1)
    weights = all_scores.float().softmax(-1).to(q.dtype)
    output = weights[..., :n] @ first_values
    for column, (_, values) in enumerate(chain, n):
        weight = weights[..., column : column + 1]
        output = output + weight * values
    return output


def save_head(head: Head, folder: Path) -> None:
    """Save a head to `folder` in the published EAGLE-3 format: config, bf16 weights, checksums."""
    config_text = json.dumps(_saved_config(head.config), indent=2, sort_keys=True) + "\n"
    weights = _saved_weights(head)
    with whole_folder(folder) as partial:
        save_file(weights, partial / "model.safetensors", metadata={"format": "pt"})
        (partial / "config.json").write_text(config_text)
    write_checksums(folder)


def _saved_config(config: HeadConfig) -> dict[str, Any]:
    layer = config.layer
    layer_values = {name: getattr(layer, name) for name in SAVED_FIELDS}
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **layer_values,
        "rope_theta": layer.rope_parameters["rope_theta"],
        "num_hidden_layers": 1,
        "draft_vocab_size": config.draft_vocab,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [n - 1 for n in config.states],
            "use_aux_hidden_state": True,
        },
    }


def _saved_weights(head: Head) -> dict[str, Tensor]:
    """The weights in bf16, and two tables: `d2t` from drafted ids to the target's, `t2d` of marks
    at the ids that can be drafted."""
    weights = {}
    for name, value in head.state_dict().items():
        weight = value.detach().cpu()
        if name != "d2t":
            weight = weight.to(torch.bfloat16)
        weights[name] = weight
    is_drafted = torch.zeros(head.config.layer.vocab_size, dtype=torch.bool)
    is_drafted[head.targets.cpu()] = True
    weights["t2d"] = is_drafted
    return weights


@torch.no_grad()
def chain_acceptance(
    target: Any, head: Head, rows: np.ndarray, temperature: float, steps: int = SHOWN_STEPS
) -> list[float]:
    """The probability that a draft is accepted at each step of a chain whose earlier drafts were
    all accepted, on marked rows [rows, 2, n]: the target's own tokens count.

    It is the mean over positions of the sum of min(p, q) (Leviathan et al. 2022, arXiv 2211.17192,
    section 3.2); at temperature 0, the share of positions where both have the same first choice.
    """
    read = StateRows(target, head.config.states)
    table = target.get_output_embeddings().weight
    totals = [0.0] * steps
    counts = [0] * steps
    for row in rows:
        ids = row[None].astype(np.int64)
        batch = torch.from_numpy(ids).to(table.device)
        for step, (hidden, labels) in enumerate(_chains(head, batch, read, steps)):
            target_logits = labels @ table.T.to(labels.dtype)
            head_logits = head.logits(hidden.float())
            accepted = _accepted(head, target_logits.float(), head_logits, temperature)
            totals[step] += accepted.sum().item()
            counts[step] += len(hidden)
    return [total / max(1, count) for total, count in zip(totals, counts, strict=True)]


def _accepted(head: Head, target_logits: Tensor, head_logits: Tensor, temperature: float) -> Tensor:
    """Numbers whose sum is the sum of the acceptance at n positions. target_logits: [n, vocab];
    head_logits: [n, draft_vocab]."""
    if temperature == 0:
        drafted_ids = head.targets[head_logits.argmax(-1)]
        return drafted_ids == target_logits.argmax(-1)
    p = (target_logits / temperature).softmax(-1)
    q = (head_logits / temperature).softmax(-1)
    return torch.minimum(p[:, head.targets], q)
