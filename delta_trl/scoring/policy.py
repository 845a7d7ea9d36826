"""The policy in training as a rule of token credit sees it, with its outputs for one rollout batch in few passes."""

from typing import Any, Protocol

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

from ..credit import LMHead, PolicyOutputs, Responses, TokenCredit
from .models import MULTIMODAL, autocast_dtype, causal_model
from .recorder import Recorder, backbone_of
from .rollout import Rollout, ScoringCall, scoring
from .rows import in_order, shortest_row
from .texts import TokenTexts


NO_COLUMNS = {"prompt", "completion", "completion_ids"}  # TRL gives rewards these names for something else


NOT_SEEN = (
    "Token credit did not see the hidden states of every row of the rollout batch. A subclass's "
    "_get_per_token_logps_and_entropies must give all rows to the base class in one call, and the model must not be "
    "compiled before the trainer is constructed (`torch_compile` in the training arguments is fine, but not with "
    "FSDP)."
)


class PolicyTrainer(Protocol):
    """What the policy needs of a trainer."""

    args: Any  # `GRPOConfig`
    model: nn.Module
    accelerator: Any
    state: Any
    temperature: float
    environments: list | None
    token_credit: TokenCredit
    scoring_call: ScoringCall
    _tokenizer: PreTrainedTokenizerBase

    def new_recorder(self, hidden: bool) -> Recorder:
        """A recorder for one scoring pass, with hidden states or without."""

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> tuple:
        """TRL's scoring method."""


class RolloutPolicy:
    """
    The `policy` of a rollout batch's [`Tokens`]. Uses TRL's own scoring pass where TRL made one; makes further passes
    with the trainer's scoring method, a micro-batch at a time, in the order in which they train.

    Args:
        trainer ([`PolicyTrainer`]): The trainer.
        batch (`dict`): The rollout batch.
        rollout ([`Rollout`]): What it comes from.
        to_score (`torch.Tensor` of shape `(B,)`): Which rows further passes score. Others have log-probabilities of 0.
        recorded ([`Recorder`], *optional*): TRL's own pass over the completions, if it was recorded.

    Attributes:
        forward_passes (`int`): Forward passes over the rollout batch beyond TRL's own.
        scored (`torch.Tensor` of shape `(B,)`): Which rows were scored.
        known (`dict[str, torch.Tensor]`): What needs no further pass: `log_probs` and perhaps `entropies` (B, T).
    """

    def __init__(
        self,
        trainer: PolicyTrainer,
        batch: dict[str, Any],
        rollout: Rollout,
        to_score: torch.Tensor,
        recorded: Recorder | None = None,
    ):
        self.model = causal_model(trainer)
        self.dtype = autocast_dtype(trainer)
        self.micro_batch_size = trainer.args.per_device_train_batch_size
        self.forward_passes = 0
        self._trainer = trainer
        self._batch = batch
        self._rollout = rollout
        self.scored = torch.ones_like(to_score)  # by TRL, unless this class does
        self._to_score = to_score
        self._pass: Recorder | None = None
        self.known: dict[str, torch.Tensor] = {}
        old = batch.get("old_per_token_logps")
        if old is not None:
            self.known["log_probs"] = old
        # TRL's first scoring call was the policy's only if its log-probs are the batch's: it may also have been the
        # reference model's, even on the same modules (PEFT with the adapter disabled).
        if recorded is not None and old is not None and recorded.log_probs is old:
            self._use(recorded)

    def score_for_trl(self) -> torch.Tensor:  # (B, T)
        """The log-probabilities for which TRL got a placeholder. This pass is TRL's own."""
        self._use(self._run(self._trainer.token_credit.needs_hidden_states))
        return self.known["log_probs"]

    def outputs(self, hidden: bool) -> PolicyOutputs:
        if self._pass is None or (hidden and self._pass.hidden is None):
            self.forward_passes += 1
            self._use(self._run(hidden or self._trainer.token_credit.needs_hidden_states))
        assert self._pass is not None
        return PolicyOutputs(self._pass.log_probs, self._pass.entropies, self._pass.hidden)

    def head(self) -> LMHead:
        return LMHead.of(self.model, self._trainer.temperature)

    def responses(self) -> Responses:
        call = self._rollout.reward_call
        columns: dict[str, Any] = {}
        for name in call.inputs[0]:
            if name not in NO_COLUMNS:
                columns[name] = [row[name] for row in call.inputs]
        columns["trainer_state"] = self._trainer.state
        if self._trainer.environments is not None:
            columns["environments"] = self._trainer.environments
        every_token = torch.ones_like(self._batch["completion_ids"])
        of_policy = self._batch.get("tool_mask", every_token)
        texts = TokenTexts(self._trainer._tokenizer)
        pairs = zip(self._batch["prompt_ids"], self._batch["prompt_mask"].bool(), strict=True)
        prompt_ids = [ids[mask].tolist() for ids, mask in pairs]
        return texts.responses(
            call.prompts, call.completions, call.completion_ids, of_policy.tolist(), columns, prompt_ids
        )

    def log_probs_at(self, rows: torch.Tensor, length: int) -> torch.Tensor:
        log_probs, *_ = self._outputs_of(rows, ScoringCall())
        return log_probs[:, :length]

    def _use(self, scored: Recorder) -> None:
        self._pass = scored
        self.known = {"log_probs": scored.log_probs, "entropies": scored.entropies}
        if "tool_mask" in self._batch and scored.hidden is not None:  # a tool's text was scored, too
            completion = self._batch["completion_mask"].bool()
            scored.hidden.keep_only(self._batch["tool_mask"][completion].bool())

    def _run(self, hidden: bool) -> Recorder:
        """Run and record a pass over the rows to score, in the context in which TRL scores a rollout batch."""
        self.scored = self._to_score
        trainer = self._trainer
        tokens = self._batch["completion_mask"]
        recorder = trainer.new_recorder(hidden)
        recorder.log_probs = torch.zeros_like(tokens, dtype=torch.float32)
        recorder.entropies = torch.zeros_like(recorder.log_probs)
        micro_batches = [self._rows_of(rows) for rows in self._rollout.order.split(self.micro_batch_size)]
        recorder.expect(torch.cat(micro_batches), tokens)
        checkpointing = disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs)
        with torch.no_grad(), checkpointing:
            for rows in micro_batches:
                to_come = len(recorder.remaining) - len(rows)
                log_probs, entropies, _ = self._outputs_of(rows, ScoringCall(recorder=recorder))
                recorder.log_probs[rows] = log_probs.to(recorder.log_probs)
                recorder.entropies[rows] = entropies.to(recorder.entropies)
                if hidden and len(recorder.remaining) != to_come:
                    raise RuntimeError(NOT_SEEN)
        recorder.finish(tokens)
        return recorder

    def _rows_of(self, micro_batch: torch.Tensor) -> torch.Tensor:
        """The rows of a micro-batch that are scored."""
        rows = micro_batch.to(self._to_score.device)
        scored = rows[self._to_score[rows]]
        if len(scored):
            return scored
        attention_mask = torch.cat([self._batch["prompt_mask"], self._batch["completion_mask"]], dim=1)
        return rows[shortest_row(attention_mask[rows])]

    def _outputs_of(self, rows: torch.Tensor, call: ScoringCall) -> tuple:
        """What TRL's scoring method returns for some rows of the batch, with their own images."""
        trainer = self._trainer
        batch = unsplit_pixel_values_by_grid(in_order([split_pixel_values_by_grid(self._batch)], rows))
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        with scoring(trainer, call):
            return trainer._get_per_token_logps_and_entropies(
                trainer.model,
                ids,
                mask,
                batch["completion_ids"].size(1),
                batch_size=self.micro_batch_size,
                compute_entropy=True,
                **{name: batch[name] for name in MULTIMODAL if name in batch},
            )


def new_recorder(trainer: PolicyTrainer, hidden: bool, place: str) -> Recorder:
    """A recorder for one scoring pass of a trainer's policy, with hidden states in a `place` or without."""
    backbone = backbone_of(causal_model(trainer)) if hidden else None
    return Recorder(backbone, place)
