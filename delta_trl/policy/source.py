"""What token credit gets from the policy: log-probabilities and hidden states, with as few passes as can be."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import is_peft_model
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOConfig
from trl.models.utils import disable_gradient_checkpointing

from ..credit import HiddenStates, LMHead, PolicyOutputs, RecomputedStates, all_reduce
from .cache import Placement
from .padding import Trim, pieces
from .plain import backbone_of
from .recorder import ScoringPass, replayed_rng


# The entries of a rollout batch that TRL's scoring takes by name, beside ids and masks
MULTIMODAL = (
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)


def has_images(inputs: dict) -> bool:
    """Whether a batch or the arguments of a scoring call hold anything but text."""
    return any(inputs.get(name) is not None for name in MULTIMODAL)


class PolicyScorer:
    """
    The policy of a trainer, as TRL scores completions with it.

    Args:
        model (`Callable`): Returns the model in training, as it is wrapped at present.
        score (`Callable`):
            `GRPOTrainer._get_per_token_logps_and_entropies`, behind what is to watch its calls (see [`ScoringPass`]).
        accelerator (`Accelerator`), args (`GRPOConfig`): The trainer's.
        trim (`Callable`): Returns how `score` trims micro-batches without images, a `Trim`; `None` if it does not.
        together (`Callable`): Of the mask of completions (B, T), returns which rows it puts together then.
    """

    def __init__(
        self,
        model: Callable[[], nn.Module],
        score: Callable,
        accelerator: Accelerator,
        args: GRPOConfig,
        trim: Callable[[], Trim | None],
        together: Callable[[torch.Tensor], list[torch.Tensor]],
    ):
        self._model, self._score, self._trim, self._together = model, score, trim, together
        self.accelerator, self.args = accelerator, args

    @property
    def model(self) -> nn.Module:
        """The causal language model itself, without wrappers of distributed training or PEFT."""
        model = self.accelerator.unwrap_model(self._model())
        return model.get_base_model() if is_peft_model(model) else model

    @property
    def backbone(self) -> nn.Module:
        """
        The module whose last hidden state enters the LM head; TRL's fused LM head calls the same one. Raises
        `ValueError` if the model shows none.
        """
        return backbone_of(self.model)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of autocast, if that is on."""
        return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.accelerator.mixed_precision)

    def log_probs(self, batch: dict, rows=slice(None), watcher: Callable | None = None) -> tuple:
        """TRL's log-probabilities (b, T) and entropies of the completion tokens, at present."""
        length = batch["completion_ids"].size(1)
        ids, mask = _model_inputs(batch, rows)
        more = {key: batch[key] for key in MULTIMODAL if key in batch}
        size = self.args.per_device_train_batch_size
        return self._score(watcher, self._model(), ids, mask, length, batch_size=size, **more)

    def micro_batches(self, batch: dict) -> Iterator[torch.Tensor]:
        """Which rows go together in a pass over a rollout batch, in its order."""
        mask = batch["completion_mask"]
        trim = None if has_images(batch) else self._trim()
        if trim is None:
            yield from torch.arange(len(mask), device=mask.device).split(self.args.per_device_train_batch_size)
        else:
            for rows, *_ in pieces(batch["prompt_mask"], mask, self._together(mask), trim):
                yield rows

    @contextmanager
    def as_rollouts_are(self) -> Iterator[None]:
        """The context in which TRL scores rollouts."""
        with torch.no_grad(), disable_gradient_checkpointing(self._model(), self.args.gradient_checkpointing_kwargs):
            yield


class RolloutPolicy:
    """
    What the policy says of one rollout batch; the `policy` of its [`Tokens`].

    Args:
        scorer (`PolicyScorer`): The policy.
        batch (`dict`): The rollout batch.
        mask (`torch.Tensor` of shape `(B, T)`): The tokens that the loss counts.
        seen (`ScoringPass`): TRL's own pass over completions, if it was seen to make one.
        placement (`Placement`, *optional*): Where to keep hidden states; `None` to recompute them.
        keeps_hidden (`bool`): Whether hidden states will be asked for, so that a pass should keep them.

    Attributes:
        forward_passes (`int`): Forwards over the rollout batch, beyond TRL's own.
    """

    def __init__(
        self,
        scorer: PolicyScorer,
        batch: dict,
        mask: torch.Tensor,
        seen: ScoringPass,
        placement: Placement | None,
        keeps_hidden: bool,
    ):
        self.model, self.dtype = scorer.model, scorer.dtype
        self.micro_batch_size = scorer.args.per_device_train_batch_size
        self.forward_passes = 0
        self._scorer, self._batch, self._mask, self._placement = scorer, batch, mask, placement
        self._keeps_hidden = keeps_hidden
        # TRL's first scoring call was the policy's own only if its log-probs are the batch's: it may also have been
        # the reference model's, even on the same modules (PEFT with the adapter disabled).
        is_ours = seen.complete and seen.log_probs is not None and seen.log_probs is batch.get("old_per_token_logps")
        self._pass: ScoringPass | None = seen if is_ours else None
        if is_ours and "tool_mask" in batch:  # which TRL's own pass does not know of
            seen.keep_only(mask[batch["completion_mask"].bool()])

    @property
    def known(self) -> dict[str, torch.Tensor]:
        """What is there without a pass: `log_probs` and perhaps `entropies` (B, T)."""
        if self._pass is not None:
            return {"log_probs": self._pass.log_probs, "entropies": self._pass.entropies}
        old = self._batch.get("old_per_token_logps")
        return {} if old is None else {"log_probs": old}

    def outputs(self, hidden: bool) -> PolicyOutputs:
        if self._pass is None or (hidden and not self._pass.dim):
            self._pass = self._score(hidden or self._keeps_hidden)
        states = self._get_hidden(self._pass) if hidden else None  # not kept here, to which recomputed ones refer
        return PolicyOutputs(self._pass.log_probs, self._pass.entropies, states)

    def _get_hidden(self, scoring: ScoringPass) -> HiddenStates | RecomputedStates:
        has_room = torch.tensor(float(scoring.hidden is not None), device=self._mask.device)
        if not all_reduce(has_room, "MIN"):
            scoring.forget()
            return self._recomputed(scoring)
        return scoring.hidden

    def head(self) -> LMHead:
        return LMHead.of(self.model, self._scorer.args.temperature)

    def log_probs_after(self, examples: torch.Tensor) -> torch.Tensor:
        self.forward_passes += 1
        with self._scorer.as_rollouts_are():
            return self._scorer.log_probs(_with_examples(self._batch, examples))[0]

    def log_probs_at(self, rows: torch.Tensor, length: int) -> torch.Tensor:
        return self._scorer.log_probs(self._batch, rows)[0][:, :length]

    def _score(self, hidden: bool) -> ScoringPass:
        """One more pass."""
        self.forward_passes += 1
        backbone = self._scorer.backbone if hidden else None
        scoring = ScoringPass(backbone, self._placement, self._mask)
        with self._scorer.as_rollouts_are():
            self._scorer.log_probs(self._batch, watcher=scoring)
        if not scoring.complete:
            raise RuntimeError(
                f"The forward hook on {type(backbone).__name__} did not see every row of the rollout batch. Hooks do "
                "not fire on a module that torch.compile has already compiled: construct the trainer with the "
                "uncompiled model (`torch_compile` in the training arguments is fine)."
            )
        return scoring

    def _recomputed(self, scoring: ScoringPass) -> RecomputedStates:
        if self._placement is not None:
            self._placement.say("hidden states fit neither into device nor main memory and are recomputed")
        shape, device = (int(self._mask.sum()), scoring.dim), self._mask.device
        return RecomputedStates(shape, scoring.dtype, device, partial(self._forward, scoring.rng_states))

    def _forward(self, rng_states: list[torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One more pass: the numbers of every micro-batch's tokens, and their hidden states (n, d)."""
        self.forward_passes += 1
        numbers = torch.full(self._mask.shape, -1, device=self._mask.device)
        numbers[self._mask] = torch.arange(int(self._mask.sum()), device=self._mask.device)
        with replayed_rng(rng_states, self._mask.device):
            for rows in self._scorer.micro_batches(self._batch):
                wanted = self._mask[rows]
                part = ScoringPass(self._scorer.backbone, Placement("device", self._mask.device), wanted)
                with self._scorer.as_rollouts_are():
                    self._scorer.log_probs(self._batch, rows, watcher=part)
                yield numbers[rows][wanted], torch.cat(part.hidden.blocks)


def _with_examples(batch: dict, examples: torch.Tensor) -> dict:
    """A batch whose prompts are prompt, another completion and prompt again, padded on the left; -1 for no example."""
    prompts = [ids[mask.bool()] for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)]
    completions = [
        ids[mask.bool()] for ids, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    ]
    given = zip(prompts, examples.tolist(), strict=True)
    rows = [prompt if i < 0 else torch.cat([prompt, completions[i], prompt]) for prompt, i in given]
    ids = pad_sequence([row.flip(0) for row in rows], batch_first=True).flip(1)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).flip(1)
    return {**batch, "prompt_ids": ids, "prompt_mask": mask.to(batch["prompt_mask"])}


def _model_inputs(batch: dict, rows: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask (b, P + T) of some rows of a batch."""
    ids = torch.cat([batch["prompt_ids"][rows], batch["completion_ids"][rows]], dim=1)
    mask = torch.cat([batch["prompt_mask"][rows], batch["completion_mask"][rows]], dim=1)
    return ids, mask
