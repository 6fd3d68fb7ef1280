"""Growth: a larger model that starts with the weights of a smaller one."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaForCausalLM

from specviz.errors import SpecvizError
from specviz.train.loop import hidden_states
from specviz.train.shapes import HEAD_WIDTH, Shape, build_model, grow

VOCAB = 50
CLOSE = {"atol": 2e-3, "rtol": 0.0}  # the norms' epsilon weighs more where zeros are added


def model(layers: int, width: int, kv_heads: int = 0, seed: int = 0) -> LlamaForCausalLM:
    """A model whose every weight matters: none is zero or one."""
    built = build_model(Shape(layers, width), vocabulary=VOCAB, end_id=0, seed=seed)
    if kv_heads:
        built.config.num_key_value_heads = kv_heads
        built = LlamaForCausalLM(built.config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in built.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=generator)
    return built.eval()


def logits(of: LlamaForCausalLM) -> torch.Tensor:
    ids = torch.randint(0, VOCAB, (2, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return of(input_ids=ids, use_cache=False).logits


def grown(shape: Shape, seed: LlamaForCausalLM) -> LlamaForCausalLM:
    fresh = build_model(shape, vocabulary=VOCAB, end_id=0, seed=7)
    grow(fresh, seed)
    return fresh.eval()


@pytest.mark.parametrize("shape", [Shape(2, 128), Shape(5, 128), Shape(2, 192), Shape(5, 192)])
def test_growing_changes_nothing_at_first(shape: Shape):
    seed = model(2, 128)
    torch.testing.assert_close(logits(grown(shape, seed)), logits(seed), **CLOSE)


def test_equal_heads_may_share_their_keys_and_values():
    seed = model(2, 256, kv_heads=4)
    with torch.no_grad():
        for layer in seed.model.layers:
            for linear in (layer.self_attn.k_proj, layer.self_attn.v_proj):
                by_head = linear.weight.view(2, 2, HEAD_WIDTH, -1)
                by_head[:, 1] = by_head[:, 0]
    larger = grown(Shape(3, 384), seed)
    assert larger.config.num_key_value_heads == 2
    torch.testing.assert_close(logits(larger), logits(seed), **CLOSE)


def test_keys_of_different_heads_start_as_their_mean():
    seed = model(1, 128, kv_heads=2)
    ours, theirs = (m.model.layers[0].self_attn for m in (grown(Shape(1, 128), seed), seed))
    for name in ("k_proj", "v_proj"):
        mean = getattr(theirs, name).weight.view(2, HEAD_WIDTH, 128).mean(0)
        torch.testing.assert_close(getattr(ours, name).weight, mean)


def test_all_new_weights_are_trained():
    larger = grown(Shape(3, 192), model(2, 128))
    ids = torch.randint(0, VOCAB, (4, 16), generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.SGD(larger.parameters(), lr=0.05)
    before = {name: weight.detach().clone() for name, weight in larger.named_parameters()}
    for _ in range(4):  # weights that read get a gradient only after those that write have changed
        hidden = hidden_states(larger, ids[:, :-1]).float()
        scores = hidden @ larger.model.embed_tokens.weight.T
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, weight in larger.named_parameters():
        if weight.ndim == 2 and "embed" not in name:
            assert (weight != before[name]).float().mean() > 0.9, name


@pytest.mark.parametrize(
    ("shape", "seed"),
    [(Shape(1, 128), (2, 128)), (Shape(2, 128), (2, 192)), (Shape(2, 256), (2, 128))],
)
def test_a_model_that_cannot_be_grown_is_rejected(shape: Shape, seed: tuple[int, int]):
    with pytest.raises(SpecvizError, match="to begin from"):
        grown(shape, model(*seed))
