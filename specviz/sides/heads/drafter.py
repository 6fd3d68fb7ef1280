"""Drafts from a head on the target: a chain that begins at the target's own hidden states.

The head is an EAGLE-3 head, the target's own multi-token prediction layers, or an assistant that
reads the target's cache too. Each is an engine that reads tokens and states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from ...core.clock import now
from ...core.cost import head_step_cost
from ...core.drafting import Drafter
from ...core.eager import EagerEngine, memory_limited
from ...core.ngrams import NgramIndex
from ...core.pair import Pair
from ...core.states import StateReader, make_head_engine
from ...core.types import Draft, RunContext
from ...errors import PairError

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath, StateEngine
    from ...pairs.heads.eagle import Head
    from ...pairs.heads.library import Assistant, MtpHead


SHARE = 3  # beside copies, a head drafts a third of the tokens that are due: its steps cost
# Tokens of a copy that are likely to be accepted, by how many agree before it, until some were.
KEPT = {4: 2.0, 3: 1.2, 2: 0.5}
LEAST = 0.35  # where fewer are likely, a head guesses better, to the end of the run
MEMORY = 0.8  # each verdict multiplies the weight of older ones by this: about five copies count


class HeadDrafter(Drafter):
    """The pair's head. Each pass of the target leaves hidden states; after the verdict those of the
    tokens that stay are the head's, and the next chain begins with the last of them."""

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        if pair.head is None:
            raise PairError(
                "this pair has no head: name one in the place of the draft, as in "
                "'TARGET+HEAD', or choose another drafter."
            )
        self._head = pair.head
        self._target = cast("StateEngine", target.engine)
        self._target.keep_states(pair.head.states)
        self.engine = make_head_engine(pair.head, run.vocab, self._target)
        self.form = self.engine.form
        self._path = self.engine.path(run)
        self._length = run.settings.max_new_tokens
        self._received = 0  # tokens whose states the head has been given

    def prefill(self, ids: Sequence[int]) -> float:
        start = now(self.engine.device)
        self._path.prepare("draft", len(ids) + 1, len(ids) + 1 + self._length)
        if ids:
            self.engine.prefill(torch.tensor(ids), self._target.states)
            self._received = len(ids)
        return now(self.engine.device) - start

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        if not self._received:
            return None  # the target has not read a single token
        return self._path.draft(ids, count)

    def rollback(self, length: int) -> None:
        # What was drafted was read with states of the head's own.
        self.engine.rollback(min(self.engine.length, self._received + 1))
        # The target's last pass began where the head's knowledge ends.
        self.engine.receive(self._target.states[: length - self._received])
        self._received = length

    def step_cost(self) -> float:
        return head_step_cost(self._head, self.engine.form)


class NgramHeadDrafter(HeadDrafter):
    """Copies, which cost nothing, where enough of them is likely to be accepted; else the head's.

    What is likely is learnt in the run, by how many tokens agree before a copy, and twice as many
    are copied. All of it depends on committed tokens alone, so q is what each token was drawn from.
    """

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        super().__init__(pair, run, target)
        self._run, self._kept = run, dict(KEPT)
        self._index = NgramIndex()
        self._size = self._begin = 0  # of the last match that was copied, and of the text then

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        self._index.extend(ids)
        size, start = self._index.match()
        likely = self._kept.get(size, 0.0)
        if likely < LEAST:
            return super().draft(ids, -(-count // SHARE))
        self._size, self._begin = size, len(ids)
        copies = min(count, max(2, math.ceil(2 * likely)))
        return Draft.certain(self._index.copied(start, copies), self._run)

    def rollback(self, length: int) -> None:
        super().rollback(length)
        if self._size:
            accepted = length - self._begin
            self._kept[self._size] = MEMORY * self._kept[self._size] + (1 - MEMORY) * accepted
            self._size = 0


class HeadEngine(StateReader):
    """An EAGLE-3 head and the places that its cache holds.

    The pair that it reads at place i is the target's state of token i and token i + 1, so it never
    reads the first token of a text, and has read `length` tokens when its cache holds length - 1
    places.
    """

    def __init__(self, head: Head, vocab: int) -> None:
        super().__init__(head.device, vocab)
        self._head = head
        weight = head.fc.weight
        self._cache = DynamicLayer()
        self._unread = weight.new_empty(0, head.fc.in_features)
        self._output = weight.new_empty(0, head.fc.out_features)  # of the last place
        # Ids of the target that its tokenizer lacks are never drafted.
        self._known = (head.targets < vocab).nonzero()[:, 0]
        self._targets = head.targets[self._known]

    @property
    def length(self) -> int:
        return int(self._cache.get_seq_length()) + 1

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        head = self._head
        with memory_limited():
            hidden = self._output
            if len(self._unread):
                hidden, self._unread = head.fuse(self._unread), self._unread[:0]
            outputs = head.step(ids.to(self.device), hidden, self._cache)
            self._output = outputs[-1:]
            return self._spread(head.logits(outputs[-keep:]) / temperature)

    def rollback(self, length: int) -> None:
        self._cache.crop(length - 1 - int(self._cache.get_seq_length()))

    def _spread(self, logits: Tensor) -> Tensor:
        """Logits of the head's tokens [n, draft_vocab] over the whole vocabulary, fp32 [n, vocab]:
        -inf elsewhere, so that the probability there is 0."""
        whole = logits.new_full((len(logits), self._vocab), -torch.inf)
        whole[:, self._targets] = logits[:, self._known]
        return whole


class AssistantEngine(StateReader):
    """An assistant of Gemma 4 beside the engine of its target.

    All drafts of a chain are made at one place, that of the last token of the text: the target's
    cache has none of the drafts. A step reads the embedding of the token before, and the target's
    state that predicted this token; further along the chain, the assistant's own output instead.
    """

    def __init__(self, assistant: Assistant, vocab: int, target: StateEngine) -> None:
        super().__init__(assistant.device, vocab)
        assert isinstance(target, EagerEngine)  # no other engine runs a Gemma 4
        self._assistant, self._target = assistant, target
        self._read = 0  # tokens that the target has read
        self._drafted = 0  # tokens of the chain that were read
        self._state = torch.empty(0)

    @property
    def length(self) -> int:
        return self._read + self._drafted

    def receive(self, states: Tensor) -> None:
        if len(states):
            self._read += len(states)
            self._state = states[-1:]

    def prefill(self, ids: Tensor, states: Tensor) -> None:
        self.receive(states)

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        with memory_limited():
            embedded = self._assistant.embedding(ids[None])  # [1, 1, width]
            state = self._state[None].to(embedded)
            output = self._assistant.model(
                inputs_embeds=torch.cat([embedded, state], -1).to(self.device),
                position_ids=torch.tensor([[self._read]], device=self.device),
                shared_kv_states=self._target.shared_keys(),
            )
        self._drafted += 1
        self._state = output.last_hidden_state[0]
        logits: Tensor = output.logits[0, :, : self._vocab]
        return logits.float() / temperature

    def rollback(self, length: int) -> None:
        self._drafted = 0


class MtpEngine(StateReader):
    """The target's multi-token prediction layers, and for each the places that its cache holds.

    Layer d (counted from 0) reads at place i the state that layer d - 1 gave there, or the target's
    own of token i, and token i + d + 1; it predicts token i + d + 2. So each draft of a chain comes
    from the next layer, at the same place. Once all layers have drafted, the last one goes on with
    its own output, one place further for each draft.

    What a layer read at the last places rests on drafts, so after a verdict every layer reads these
    few places again, with the tokens that were kept.
    """

    def __init__(self, head: MtpHead, vocab: int) -> None:
        super().__init__(head.device, vocab)
        from transformers.cache_utils import MtpCache  # which older versions lack

        self._model, self._layers = head.model, head.count
        self._cache: Any = MtpCache(config=head.model.config)
        self._cache.activate_past_recording()
        none = torch.empty(0, head.width, device=head.device, dtype=head.dtype)
        self._unread = self._output = none
        self._ids = torch.empty(0, dtype=torch.long, device=head.device)  # tokens read, from 1 on
        # By layer: what it has to read from the place on at which its cache ends after a verdict.
        self._waiting = [none] * self._layers
        self._begin = [0] * self._layers
        self._step = 0  # of the chain

    @property
    def length(self) -> int:
        return len(self._ids) + 1

    @torch.inference_mode()
    def prefill(self, ids: Tensor, states: Tensor) -> None:
        super().prefill(ids, states)
        for layer in range(1, self._layers):
            sure = max(0, len(self._ids) - layer)
            known, self._waiting[layer] = self._waiting[layer].tensor_split([sure])
            self._begin[layer] = len(known)
            if len(known):
                self._pass_on(layer, self._read(layer, known))

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        self._ids = torch.cat([self._ids, ids.to(self.device)])
        with memory_limited():
            outputs = self._chained()
            self._output = outputs[-1:]
            logits: Tensor = self._model._project_to_logits(outputs[None, -keep:])
        return logits[0, :, : self._vocab].float() / temperature

    def rollback(self, length: int) -> None:
        known = length - 1  # tokens from 1 on that stay, so layer d is sure of known - d places
        for layer, cached in enumerate(self._cache.layers):
            sure = min(max(0, known - layer), cached.get_seq_length())
            if cached.is_initialized:
                cached.crop(sure - cached.get_seq_length())  # by 0, too: it trims windows
            given = max(0, known - layer + 1) if layer else sure
            begin = self._begin[layer]
            self._waiting[layer] = self._waiting[layer][sure - begin : given - begin]
            self._begin[layer] = sure
        self._ids = self._ids[:known]

    def _chained(self) -> Tensor:
        """The outputs [n, width] of the pass that reads the tokens which `_ids` has just got."""
        if len(self._unread):
            self._step = 0
            states, self._unread = self._unread, self._unread[:0]
        else:
            self._step += 1
            past_all = self._step >= self._layers
            states = self._output if past_all else self._waiting[self._step]
        layer = min(self._step, self._layers - 1)
        outputs = self._read(layer, states)
        if layer == self._step:
            self._pass_on(layer, outputs)
        return outputs

    def _pass_on(self, layer: int, outputs: Tensor) -> None:
        if layer + 1 < self._layers:
            self._waiting[layer + 1] = torch.cat([self._waiting[layer + 1], outputs])

    def _read(self, layer: int, states: Tensor) -> Tensor:
        begin, n = self._cache.layers[layer].get_seq_length(), len(states)
        places = torch.arange(begin + layer, begin + layer + n, device=self.device)
        outputs: Tensor = self._model.forward_layer(
            layer,
            states[None],
            position_ids=places[None] + 1,
            mtp_cache=self._cache,
            input_ids=self._ids[places][None],
        )
        return outputs[0]
