"""
Rows are packed into one sequence. For models whose layers mix tokens, they are left-aligned and trimmed.

TRL pads all rows of a rollout batch to one width and runs every micro-batch at that width. A [`StandIn`] takes the
model's place in that call: it lays rows out without their padding, and gives back what TRL expects. The positions of a
row's tokens count from 0, as in `generate`. There are three layouts:

- `PACKED`: The rows of a micro-batch are one sequence, and a prompt that they share stands there once.
  Attention is computed within each row (`attention_within_rows`), and everything else in a decoder sees one token at a
  time.
- `LEFT`: Every row begins at the left, and the micro-batch is as wide as its longest row.
- `None`: TRL's rows and columns.

Padding is what stands before the first and after the last valid token of a row. A micro-batch with any other gap keeps
TRL's columns.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad
from transformers import AttentionInterface, DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .callables import code_of_modules
from .recorder import Recorder


ATTENTION = {"DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer"}  # transformers' caches of attention layers
PACKED = "packed"
LEFT = "moved to the left"
BLOCK = 1024  # queries at a time of a row that is longer than its sliding window


@dataclass
class PackedRows:
    """
    Rows that are packed into one sequence.

    Args:
        lengths (`list[int]`): Tokens of each row, without a prompt that it shares.
        shared (`list[int]`): Tokens of the prompt that each row shares with the last row that shares none.
        mask (`torch.Tensor` of shape `(1, 1, 1, n)`): The mask that the model is given.

    Attributes:
        seen (`set[int]`): The attention layers, by `id`, that have run on these rows with that very mask. A layer with
            another mask masks something of its own.
    """

    lengths: list[int]
    shared: list[int]
    mask: torch.Tensor
    seen: set[int] = field(default_factory=set)


@dataclass
class StandIn:
    """
    Stands in for a model in `GRPOTrainer._get_per_token_logps_and_entropies`.

    Args:
        model (`Callable`): The model, as TRL calls it.
        layout (`str`, *optional*):
            `PACKED`, `LEFT` or `None`. Becomes `None` once packed rows do not reach every attention layer.
        layers (`int`): Attention layers of the model.
        share_prompts (`bool`): Whether packed rows that follow each other have a common prompt once.
        recorder ([`Recorder`], *optional*): Records the hidden states. By default, nothing is recorded.
    """

    model: Callable
    layout: str | None
    layers: int = 0
    share_prompts: bool = False
    recorder: Recorder = field(default_factory=Recorder)

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **options: Any
    ) -> Any:
        valid = attention_mask.bool()  # (b, P + T)
        if self.layout is None or has_gaps(valid):
            options["attention_mask"] = attention_mask
            return self.recorder.run(self.model, len(valid), input_ids=input_ids, labels=labels, **options)
        positions = valid.cumsum(dim=1) - 1
        if self.layout == LEFT:
            lengths = valid.sum(dim=1, keepdim=True)
            columns = torch.arange(int(lengths.max()), device=valid.device)
            places = columns < lengths
            options["attention_mask"] = places.long()
            return self._run_moved(valid, places, positions, input_ids, labels, **options)
        repeated = torch.zeros_like(valid)  # tokens of a prompt that another row has, too
        if self.share_prompts:
            repeated = repeated_prompts(valid, input_ids, labels)
        kept = valid & ~repeated
        lengths = kept.sum(dim=1)
        shared = repeated.sum(dim=1)
        places = valid.new_ones(1, int(lengths.sum()))
        mask = places[None, None]  # of four dimensions: transformers hands it on to attention as it is
        rows = PackedRows(lengths.tolist(), shared.tolist(), mask)
        remaining = self.recorder.remaining
        output = self._run_moved(kept, places, positions, input_ids, labels, attention_mask=mask, rows=rows, **options)
        if len(rows.seen) == self.layers:
            return output
        # Some layer did not attend within rows, so the output is worth nothing: these rows run again, as TRL's
        self.layout = None
        self.recorder.remaining = remaining
        return self(input_ids, attention_mask, labels, **options)

    def _run_moved(
        self,
        valid: torch.Tensor,
        places: torch.Tensor,
        positions: torch.Tensor,
        input_ids: torch.Tensor,
        labels: torch.Tensor,
        **options: Any,
    ) -> Any:
        """
        Run the model on some tokens alone, and move their outputs back.

        Args:
            valid (`torch.Tensor` of shape `(b, P + T)`): Which tokens run.
            places (`torch.Tensor`): Mask of the shape that the model gets. It has as many places as there are tokens.
            positions, input_ids, labels (`torch.Tensor` of shape `(b, P + T)`): The model's.
            **options: Other arguments of the model.
        """

        def moved(values: torch.Tensor, fill: int = 0) -> torch.Tensor:
            filled = values.new_full(places.shape, fill)
            return filled.masked_scatter(places, values[valid])

        def moved_back(values: torch.Tensor) -> torch.Tensor:  # from the second token on, as in `FusedCausalLMOutput`
            zeros = values.new_zeros(valid.shape)
            of_tokens = pad(values, (1, 0))[places]
            return zeros.masked_scatter(valid, of_tokens)[:, 1:]

        output = self.recorder.run(
            self.model,
            len(valid),
            input_ids=moved(input_ids),
            position_ids=moved(positions),
            labels=moved(labels, -100),
            **options,
        )
        output.log_probs = moved_back(output.log_probs)
        if output.entropy is not None:  # the LM head of a reference model computes none
            output.entropy = moved_back(output.entropy)
        return output


def kind_of(model: PreTrainedModel) -> dict[str, Any]:
    """
    What decides how rows can be laid out and is cheap to ask.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            A causal language model or a PEFT model, not wrapped for distributed training.
    """
    config = model.config.get_text_config()
    adapters = getattr(model, "peft_config", {}).values()
    return {
        "config": type(config),
        "attention": attention_of(config),
        "layers": layers_of(config),
        "layer_types": getattr(config, "layer_types", None),
        "rope": getattr(config, "rope_parameters", None),
        "positions": positions_of(config),
        "code": code_of_modules(model),
        "adapters per row": any(getattr(adapter, "alora_invocation_tokens", None) for adapter in adapters),
    }


def can_be_packed(kind: dict[str, Any]) -> bool:
    """Whether a model of this kind may be probed with packed rows: only attention by `sdpa` mixes its tokens."""
    if "chunked_attention" in (kind["layer_types"] or ()):  # transformers gives them the cache of a window
        return False
    return kind["attention"] == OURS and ATTENTION.issuperset(kind["layers"])


def attention_of(config: PreTrainedConfig) -> tuple:
    """The attention of a model's config: its name, and the functions that compute it and its mask."""
    name = config._attn_implementation
    return name, ALL_ATTENTION_FUNCTIONS.get(name), ALL_MASK_ATTENTION_FUNCTIONS.get(name)


def layers_of(config: PreTrainedConfig) -> list[str]:
    """The kinds of layers by the caches that transformers gives them."""
    return [type(layer).__name__ for layer in DynamicCache(config=config).layers]


def positions_of(config: PreTrainedConfig) -> int:
    """
    How many positions a row may have without any effect on others: those that the model's config declares, and for
    `longrope` the original ones, as it has other factors beyond. Without any, there is no limit.
    """
    limit = getattr(config, "max_position_embeddings", None) or sys.maxsize
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *rope.values()):  # some models have them by kind of layer
        if isinstance(parameters, dict) and parameters.get("rope_type") == "longrope":
            limit = min(limit, parameters["original_max_position_embeddings"])
    return limit


def has_gaps(valid: torch.Tensor) -> bool:
    """Whether a row (b, P + T) has padding between its first and its last valid token."""
    previous = pad(valid, (1, 0))[:, :-1]
    begins = valid & ~previous
    n_begins = begins.sum(dim=1)
    return bool((n_begins > 1).any())


def repeated_prompts(valid: torch.Tensor, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """
    Mask (b, P + T) of the prompt tokens that the previous row already has. Each row keeps the last token of its
    prompt, which predicts the first of its completion.
    """
    prompt = valid & (labels == -100)
    tokens = input_ids.masked_fill(~prompt, -1)  # also tells in which columns a prompt stands
    is_equal = tokens[1:] == tokens[:-1]
    is_equal_row = is_equal.all(dim=1)
    repeats = pad(is_equal_row, (1, 0))  # (b,): the first row has none before it
    next_in_prompt = pad(prompt[:, 1:], (0, 1))
    return prompt & next_in_prompt & repeats[:, None]


def attention_within_rows(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    rows: PackedRows | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """
    transformers' `sdpa`, and the same for packed rows, one after the other. A shared prompt takes part in the
    attention of each of its rows.
    """
    if rows is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if attention_mask is rows.mask:
        rows.seen.add(id(module))
    # `split`, as the gradient of a slice has the size of the whole pack
    pieces = [states.split(rows.lengths, dim=2) for states in (query, key, value)]
    outputs = []
    first_of_prompt: list[torch.Tensor] = []  # of the last row that has its prompt itself
    for states_of_row, shared in zip(zip(*pieces, strict=True), rows.shared, strict=True):
        row = list(states_of_row)
        if shared:
            prompt = [states[:, :, :shared] for states in first_of_prompt]
            row = [torch.cat(halves, dim=2) for halves in zip(prompt, row, strict=True)]
        else:
            first_of_prompt = row
        output = _attention_of_row(module, row, sliding_window, options)
        outputs.append(output[:, shared:])
    return torch.cat(outputs, dim=1), None


def _attention_of_row(
    module: nn.Module, row: list[torch.Tensor], window: int | None, options: dict[str, Any]
) -> torch.Tensor:
    """
    Causal attention (1, length, heads, d) within one row, and within a sliding window if the row is longer. Then it
    goes through blocks of queries: a mask of the whole row would have the square of its length.
    """
    query, key, value = row
    length = query.size(2)
    if window is None or length <= window:
        output, _ = sdpa_attention_forward(module, query, key, value, None, **options)
        return output
    positions = torch.arange(length, device=query.device)
    outputs = []
    for start in range(0, length, BLOCK):
        queries = slice(start, min(start + BLOCK, length))
        keys = slice(max(0, start - window + 1), queries.stop)  # from the first that a query of this block sees
        distance = positions[queries, None] - positions[keys]
        band = (distance >= 0) & (distance < window)
        output, _ = sdpa_attention_forward(
            module, query[:, :, queries], key[:, :, keys], value[:, :, keys], band[None, None], **options
        )
        outputs.append(output)
    return torch.cat(outputs, dim=1)


def register_attention() -> None:
    """Put `attention_within_rows` in the place of transformers' own `sdpa`. Somebody else's stays."""
    if ALL_ATTENTION_FUNCTIONS["sdpa"] is sdpa_attention_forward:
        AttentionInterface.register("sdpa", attention_within_rows)


OURS = ("sdpa", attention_within_rows, sdpa_mask)  # see `attention_of`
