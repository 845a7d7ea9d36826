"""The policy in training, as a rule of token credit sees it: its outputs for one rollout batch, in few passes."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn.utils.rnn import pad_sequence

from ..credit import HiddenStates, LMHead, PolicyOutputs, RecomputedStates, all_reduce
from ..policy.cache import Placement
from ..policy.recorder import ScoringPass, backbone_of, replayed_rng
from .scoring import MULTIMODAL, autocast_dtype, causal_model, rollout_scoring
from .trimmed_padding import TrimmedPadding


class RolloutPolicy:
    """
    The `policy` of a rollout batch's [`Tokens`]. Uses TRL's own scoring pass where TRL made one; makes further passes
    with the trainer's scoring method.

    Args:
        trainer ([`TrimmedPadding`]): The trainer.
        batch (`dict`): The rollout batch.
        mask (`torch.Tensor` of shape `(B, T)`): The tokens that the loss counts.
        recorded (`ScoringPass`): TRL's own pass over the completions, if it was recorded.
        placement (`Placement`, *optional*): Where to keep hidden states; `None` to recompute them.
        keeps_hidden (`bool`): Whether the rule reads hidden states, so that every pass should keep them.

    Attributes:
        forward_passes (`int`): Forward passes over the rollout batch beyond TRL's own.
    """

    def __init__(
        self,
        trainer: TrimmedPadding,
        batch: dict,
        mask: torch.Tensor,
        recorded: ScoringPass,
        placement: Placement | None,
        keeps_hidden: bool,
    ):
        self.model, self.dtype = causal_model(trainer), autocast_dtype(trainer)
        self.micro_batch_size = trainer.args.per_device_train_batch_size
        self.forward_passes = 0
        self._trainer, self._batch, self._mask, self._placement = trainer, batch, mask, placement
        self._keeps_hidden = keeps_hidden
        # TRL's first scoring call was the policy's only if its log-probs are the batch's: it may also have been the
        # reference model's, even on the same modules (PEFT with the adapter disabled).
        old = batch.get("old_per_token_logps")
        is_ours = recorded.complete and recorded.log_probs is not None and recorded.log_probs is old
        self._pass: ScoringPass | None = recorded if is_ours else None
        if is_ours and "tool_mask" in batch:  # TRL's own pass has recorded the tools' tokens, too
            recorded.keep_only(mask[batch["completion_mask"].bool()])

    @property
    def known(self) -> dict[str, torch.Tensor]:
        """Outputs that need no further pass: `log_probs` and perhaps `entropies` (B, T)."""
        if self._pass is not None:
            return {"log_probs": self._pass.log_probs, "entropies": self._pass.entropies}
        old = self._batch.get("old_per_token_logps")
        return {} if old is None else {"log_probs": old}

    def outputs(self, hidden: bool) -> PolicyOutputs:
        if self._pass is None or (hidden and not self._pass.dim):
            self._pass = self._score(hidden or self._keeps_hidden)
        states = self._get_hidden(self._pass) if hidden else None  # no attribute: recomputed states refer to `self`
        return PolicyOutputs(self._pass.log_probs, self._pass.entropies, states)

    def _get_hidden(self, scoring: ScoringPass) -> HiddenStates | RecomputedStates:
        has_room = torch.tensor(float(scoring.hidden is not None), device=self._mask.device)
        if not all_reduce(has_room, "MIN"):
            scoring.forget()
            return self._recomputed(scoring)
        return scoring.hidden

    def head(self) -> LMHead:
        return LMHead.of(self.model, self._trainer.temperature)

    def log_probs_after(self, examples: torch.Tensor) -> torch.Tensor:
        self.forward_passes += 1
        with rollout_scoring(self._trainer):
            return self._log_probs(_with_examples(self._batch, examples))

    def log_probs_at(self, rows: torch.Tensor, length: int) -> torch.Tensor:
        return self._log_probs(self._batch, rows)[:, :length]

    def _log_probs(self, batch: dict, rows: torch.Tensor | slice = slice(None)) -> torch.Tensor:  # (b, T)
        args, options = self._scoring_call(batch, rows)
        return self._trainer._get_per_token_logps_and_entropies(self._trainer.model, *args, **options)[0]

    def _scoring_call(self, batch: dict, rows: torch.Tensor | slice = slice(None)) -> tuple[tuple, dict]:
        """Arguments of TRL's scoring method, and its options, for some rows of a batch."""
        ids, mask = (
            torch.cat([batch[f"prompt_{name}"][rows], batch[f"completion_{name}"][rows]], dim=1)
            for name in ("ids", "mask")
        )
        more = {name: batch[name] for name in MULTIMODAL if name in batch}
        return (ids, mask, batch["completion_ids"].size(1)), {"batch_size": self.micro_batch_size, **more}

    def _record(self, scoring: ScoringPass, rows: torch.Tensor | slice = slice(None)) -> None:
        """Record a scoring pass over some rows."""
        trainer, (args, options) = self._trainer, self._scoring_call(self._batch, rows)
        score = partial(trainer._get_per_token_logps_and_entropies, trainer.model, *args, **options)
        with rollout_scoring(trainer):
            scoring.record(score, self._mask[rows])

    def _score(self, hidden: bool) -> ScoringPass:
        """Run and record one more pass over the rollout batch."""
        self.forward_passes += 1
        backbone = backbone_of(self.model) if hidden else None
        scoring = ScoringPass(backbone, self._placement, self._trainer.piece_in_progress)
        self._record(scoring)
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
        """One more pass. Yields the token indices (n,) and hidden states (n, d) of each micro-batch."""
        self.forward_passes += 1
        device = self._mask.device
        numbers = torch.full(self._mask.shape, -1, device=device)
        numbers[self._mask] = torch.arange(int(self._mask.sum()), device=device)
        (_, *masks), options = self._scoring_call(self._batch)
        with replayed_rng(rng_states, device):
            for piece in self._trainer.scoring_plan(self._trainer.model, *masks, **options):
                for rows in piece.rows.split(self.micro_batch_size):
                    kept = Placement("device", device)
                    part = ScoringPass(backbone_of(self.model), kept, self._trainer.piece_in_progress)
                    self._record(part, rows)
                    yield numbers[rows][self._mask[rows]], torch.cat(part.hidden.blocks)


def _with_examples(batch: dict, examples: torch.Tensor) -> dict:
    """
    A batch whose prompts are prompt, another completion and prompt again, padded on the left. `examples` (B,) are the
    rows of these completions; with -1, the prompt stays as it is.
    """
    prompts = [ids[mask.bool()] for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)]
    completions = [
        ids[mask.bool()] for ids, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    ]
    given = zip(prompts, examples.tolist(), strict=True)
    rows = [prompt if i < 0 else torch.cat([prompt, completions[i], prompt]) for prompt, i in given]
    ids = pad_sequence([row.flip(0) for row in rows], batch_first=True).flip(1)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).flip(1)
    return {**batch, "prompt_ids": ids, "prompt_mask": mask.to(batch["prompt_mask"])}
