"""A head on a target, trained as EAGLE-3 heads are: on its own outputs (arXiv 2503.01840).

The labels are the target's whole distributions. In training, the head takes several steps from
each place, and every step but the first reads its own output of the step before, as it will when
it drafts: the paper's training-time test. Tokens are those of the text, so that the target's
distribution is known at every step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from ..pairs.heads.eagle import Head, HeadConfig
from .losses import forward_kl

STEPS = 3  # of a chain in training
STEP_WEIGHT = 0.8  # of each further step's loss, relative to the one before, as in the paper's code


def new_head(target: LlamaForCausalLM, layers: tuple[int, ...], targets: Tensor) -> Head:
    """A head for `target` whose first weights are those of the target's last layer and head.

    layers: after how many of the target's layers its states are read. targets: int64
    [draft_vocab], ascending, the tokens that it can draft. The middle one of the states passes
    through `fc` unchanged at first.
    """
    config: LlamaConfig = target.config
    layer = LlamaConfig(**{**config.to_dict(), "num_hidden_layers": 1, "dtype": "float32"})
    width = layer.hidden_size
    head = Head(HeadConfig(layer, width, layers, len(targets)))
    head.embedding = target.model.embed_tokens.weight.detach().float()
    head.d2t.copy_(targets - torch.arange(len(targets)))
    last = target.model.layers[-1]
    with torch.no_grad():
        head.fc.weight.zero_()
        middle = len(layers) // 2 * width
        head.fc.weight[:, middle : middle + width] = torch.eye(width)
        for name in ("q_proj", "k_proj", "v_proj"):
            own, theirs = (getattr(one.self_attn, name).weight for one in (head.midlayer, last))
            own[:, :width].mul_(0.1)
            own[:, width:] = theirs
        head.midlayer.self_attn.o_proj.weight.copy_(last.self_attn.o_proj.weight)
        head.midlayer.mlp.load_state_dict(last.mlp.state_dict())
        head.midlayer.hidden_norm.weight.copy_(last.input_layernorm.weight)
        head.midlayer.post_attention_layernorm.weight.copy_(last.post_attention_layernorm.weight)
        head.norm.weight.copy_(target.model.norm.weight)
        head.lm_head.weight.copy_(target.get_output_embeddings().weight[targets])
    return head


def frequent_tokens(tokens: np.ndarray, vocab: int, count: int) -> Tensor:
    """The `count` most frequent ids of a text, ascending: int64 [count]."""
    found = np.argsort(-np.bincount(tokens, minlength=vocab), kind="stable")[:count]
    return torch.from_numpy(np.sort(found))


class ChainLoss:
    """The loss of a head on ids [rows, length + 1], or marked rows [rows, 2, length + 1]: the mean
    KL(target || head), in nats, over the steps of the chains that begin at every place.

    The target's probabilities are restricted to the head's tokens and normalised again.
    """

    def __init__(self, target: LlamaForCausalLM, head: Head, steps: int = STEPS) -> None:
        self._target, self._steps = target, steps
        self._read = StateReader(target, head.config.states)
        embedding = target.get_output_embeddings().weight.detach()
        self._labels_head = embedding[head.targets.to(embedding.device)].to(torch.bfloat16)

    def __call__(self, head: Head, ids: Tensor) -> Tensor:
        # Of marked rows the ids alone: they are full, and a head learns from their openings too.
        ids = ids[:, 0] if ids.ndim == 3 else ids
        states, last = self._read(ids)
        total, weights = torch.zeros((), device=ids.device), 0.0
        for step, hidden in enumerate(chain_outputs(head, ids, states, self._steps)):
            # The output at place i of this step predicts what comes after token i + 1 + step.
            kept = ids.shape[1] - 1 - step
            labels = last[:, 1 + step :].flatten(0, 1)
            normed = head.norm(hidden[:, :kept]).flatten(0, 1).to(torch.bfloat16)
            own = head.lm_head.weight.to(torch.bfloat16)
            weight = STEP_WEIGHT**step
            total = total + weight * forward_kl(normed, own, labels, self._labels_head)
            weights += weight
        return total / weights


class StateReader:
    """Reads a target's hidden states: a call with ids [rows, n] gives the states that a head reads,
    [rows, n, len(layers) * width], and the final normed ones, [rows, n, width], both bf16."""

    def __init__(self, target: LlamaForCausalLM, layers: tuple[int, ...]) -> None:
        self._target, self._layers = target, layers

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        found: dict[int, Tensor] = {}

        def keep(after: int) -> Callable[[nn.Module, object, Tensor], None]:
            def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
                found[after] = output

            return hook

        blocks = self._target.model.layers
        hooks = [blocks[n - 1].register_forward_hook(keep(n)) for n in self._layers]
        try:
            with torch.autocast(ids.device.type, dtype=torch.bfloat16):
                last = self._target.model(input_ids=ids, use_cache=False).last_hidden_state
        finally:
            for hook in hooks:
                hook.remove()
        states = torch.cat([found[n] for n in self._layers], -1)
        return states.to(torch.bfloat16), last.to(torch.bfloat16)


def chain_outputs(head: Head, ids: Tensor, states: Tensor, steps: int) -> list[Tensor]:
    """The head's outputs at each step of the chains that begin at every place of `ids`
    [rows, n + 1], [rows, n, width] each; the last `step` places of a step lack their tokens, and
    are to be left out.

    states: of the target at these places, [rows, n + 1, ..]. A step attends to the first step's
    keys up to the place where its chain began, and to its own chain.
    """
    n = ids.shape[1] - 1
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        hidden = head.fuse(states[:, :-1])
        past: list[tuple[Tensor, Tensor]] = []
        outputs = []
        for step in range(steps):
            tokens = nn.functional.pad(ids[:, 1 + step :], (0, step))
            angles = head.angles(step, n)
            residual, (q, k, v) = head.midlayer.begin(head.embed(tokens), hidden, angles)
            groups = q.shape[1] // k.shape[1]
            past.append((k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)))
            hidden = head.midlayer.finish(residual, _attended(q, past))
            outputs.append(hidden)
    return outputs


def _attended(q: Tensor, past: list[tuple[Tensor, Tensor]]) -> Tensor:
    """What q [rows, heads, n, dim] of the last step sees: the first step's places up to its own,
    and of each later step only its own place, which is of the same chain."""
    (first_keys, first_values), *chain = past
    n = q.shape[2]
    scale = q.shape[-1] ** -0.5
    causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    scores = [((q @ first_keys.transpose(-1, -2)) * scale).masked_fill(~causal, -torch.inf)]
    scores += [(q * keys).sum(-1, keepdim=True) * scale for keys, _ in chain]
    weights = torch.cat(scores, -1).float().softmax(-1).to(q.dtype)
    seen = weights[..., :n] @ first_values
    for i, (_, values) in enumerate(chain):
        seen = seen + weights[..., n + i : n + i + 1] * values
    return seen
