"""Where a rollout batch's hidden states come from: generation, TRL's own scoring pass, one more pass, or several."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from accelerate.logging import get_logger

from .cache import Placement
from .capture import GenerationCapture, Trust, is_random_or_routed, relative_difference, tolerance
from .credit import LMHead, RecomputedStates, token_log_probs
from .credit.distributed import all_reduce
from .recording import (
    HiddenStateRecorder,
    get_rng_states,
    predicting_states,
    replayed_rng,
    trl_scores_rollouts,
)


logger = get_logger(__name__)


class HiddenStateSource:
    """
    Gets the hidden states of each rollout batch of a [`DeltaGRPOTrainer`] with as few forwards as can be: none where
    they are seen during generation or in TRL's own scoring pass, else one; several where there is no room for them.

    Args:
        trainer (`DeltaGRPOTrainer`): Whose rollout batches.

    Attributes:
        forward_passes (`int`): Forwards over the present rollout batch, beyond TRL's own.

    Raises:
        ValueError: If hidden states are to be recomputed, and the model takes more than text.
    """

    def __init__(self, trainer):
        self._trainer = trainer
        cache = trainer.credit_args.hidden_state_cache
        self._placement = None if cache == "recompute" else Placement(cache, trainer.accelerator.device)
        self._may_recompute = not trainer._is_vlm and trainer.credit_args.centroid_scope == "batch"
        if self._placement is None and not self._may_recompute:
            raise ValueError("hidden_state_cache='recompute' supports text-only models. Use 'cpu'.")
        self.forward_passes = 0
        self._trust = Trust()
        # of the present rollout batch: what watches its generation, or the first scoring call
        self._capture: GenerationCapture | None = None
        self._recorder: HiddenStateRecorder | None = None
        self._armed = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the generation of a new rollout batch, or TRL's own scoring call that follows."""
        self.forward_passes = 0
        self._recorder = HiddenStateRecorder(self._placement)
        self._capture = self._start_capture() if self.may_capture() else None
        self._armed = trl_scores_rollouts(self._trainer.args)
        try:
            yield
        finally:  # also if a reward raises
            self._recorder, self._capture, self._armed = None, None, False

    def may_capture(self) -> bool:
        """Whether generation computes the states that a scoring pass would; `_captured` compares them."""
        trainer, args = self._trainer, self._trainer.args
        zero3 = args.deepspeed_plugin is not None and args.deepspeed_plugin.zero_stage == 3
        return (
            self._placement is not None
            and not self._trust.lost
            and not trl_scores_rollouts(args)
            and not (args.use_vllm or trainer.use_transformers_continuous_batching or trainer.rollout_func is not None)
            and trainer.generation_config.get_generation_mode() in ("sample", "greedy_search")
            and not (trainer.tools or trainer._is_vlm)  # completions of several turns, inputs beside tokens
            and not args.mask_truncated_completions  # states would be kept in vain
            and not (trainer.is_fsdp_enabled or zero3)
            and not is_random_or_routed(trainer._policy())
        )

    def _start_capture(self) -> GenerationCapture:
        trainer = self._trainer
        with trainer.accelerator.autocast():
            kind = trainer.accelerator.device.type
            dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return GenerationCapture(self._placement, trainer.eos_token_ids, trainer.max_completion_length, dtype)

    def watching_generation(self) -> AbstractContextManager:
        """The context for `generate`."""
        return self._capture.capturing(self._trainer._find_backbone()) if self._capture else nullcontext()

    def generated(self, lengths: list[int]) -> None:
        """Tell of completions of so many tokens."""
        if self._capture:
            self._capture.finish(lengths)

    def expect_tools(self, tool_mask: list[list[int]] | None) -> None:
        """Tell which tokens are a tool's, before completions are scored."""
        if self._armed:
            self._recorder.tool_mask = tool_mask

    def disarm(self) -> HiddenStateRecorder | None:
        """The recorder, for the first scoring call of a rollout batch only."""
        armed, self._armed = self._armed, False
        return self._recorder if armed else None

    def get(self, batch: dict, valid: torch.Tensor) -> HiddenStateRecorder:
        """
        What a scoring pass of the policy over a rollout batch shows: its `states`, as they are or to be recomputed,
        and `log_probs`. Collective; the source keeps nothing of them.

        Args:
            batch (`dict`): The rollout batch.
            valid (`torch.Tensor` of shape `(B, T)`): The tokens that the loss counts.
        """
        recorder, capture = self._recorder, self._capture
        self._recorder, self._capture, self._armed = None, None, False
        captured = capture and self._captured(capture, batch, valid)
        if captured:
            return captured
        del capture  # with its hidden states
        # The first scoring call was the policy's own only if its log-probs are the batch's: it may also have been the
        # reference model's, even on the same modules (PEFT with the adapter disabled).
        if not (recorder.complete and recorder.log_probs is batch.get("old_per_token_logps")):
            del recorder  # with the hidden states of the wrong model, if any
            recorder = self._score(batch)
        kept, summed = self._on_all_ranks(recorder.states is not None, recorder.response_sums is not None)
        if not kept:
            recorder.states = self._recomputed(recorder, batch, valid)
        if not summed:
            recorder.response_sums = None
        return recorder

    def _score(self, batch: dict) -> HiddenStateRecorder:
        """One more pass."""
        trainer = self._trainer
        self.forward_passes += 1
        self._recorder, self._armed = HiddenStateRecorder(self._placement), True
        self._recorder.tool_mask = batch.get("tool_mask")
        trainer._score(batch)
        recorder, self._recorder = self._recorder, None
        if not recorder.complete:
            raise RuntimeError(
                f"The forward hook on {type(trainer._find_backbone()).__name__} did not see every row of the rollout "
                "batch. Hooks do not fire on a module that torch.compile has already compiled: construct the trainer "
                "with the uncompiled model (`torch_compile` in the training arguments is fine)."
            )
        return recorder

    def _recomputed(self, recorder: HiddenStateRecorder, batch: dict, valid: torch.Tensor) -> RecomputedStates:
        if not self._may_recompute:
            raise RuntimeError(
                "hidden_state_cache='auto' finds no room for the hidden states of this rollout batch, and they can be "
                "recomputed only for text-only models with centroid_scope='batch'. Use a smaller rollout batch."
            )
        if self._placement is not None:
            self._placement.say("hidden states fit neither into device nor main memory and are recomputed")
        return RecomputedStates(
            (int(valid.sum()), recorder.dim),
            recorder.dtype,
            valid.device,
            lambda: (part[:2] for part in self._forward(batch, valid, recorder.rng_states)),
        )

    def _captured(self, capture: GenerationCapture, batch: dict, valid: torch.Tensor) -> HiddenStateRecorder | None:
        """What a recorder would have, from the states of generation; `None` if they cannot be trusted on all ranks."""
        trainer, trust = self._trainer, self._trust
        complete, trusted = self._on_all_ranks(capture.states is not None, trust.covers(batch))
        if not complete:
            return None
        recorder = HiddenStateRecorder(self._placement)
        recorder.states, capture.states = capture.states, None
        head = LMHead.of(trainer._policy(), trainer.temperature)
        log_probs = token_log_probs(recorder.states, batch["completion_ids"][valid], head).float()
        recorder.log_probs = torch.zeros(valid.shape, device=valid.device).masked_scatter_(valid, log_probs)
        if trusted:
            return recorder
        self.forward_passes += 1
        difference = log_probs.new_zeros(2)  # of states; of probabilities
        for tokens, states, scored in self._forward(batch, valid, get_rng_states(valid.device)):
            captured = recorder.states[torch.arange(tokens.start, tokens.stop, device=valid.device)]
            for part, ours in captured.chunks():
                difference[0] = torch.maximum(difference[0], relative_difference(ours, states[part]))
            error = (log_probs[tokens].exp() - scored.exp()).abs()
            difference[1] = torch.cat([error, difference[1:]]).max()
        difference = all_reduce(difference, "MAX").max().item()
        allowed = tolerance(recorder.states.dtype)
        if difference <= allowed:
            trust.extend(batch)
            return recorder
        trust.lost = True
        logger.warning(
            f"Hidden states of generation differ from those of a scoring pass (by {difference:.2g}, relative to their "
            f"length; {allowed:.2g} would pass for rounding): every rollout batch costs one forward pass."
        )
        return None

    def _forward(
        self, batch: dict, valid: torch.Tensor, rng_states: list[torch.Tensor]
    ) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Of every micro-batch in one more pass: which tokens, their hidden states (n, d) and log-probabilities."""
        trainer = self._trainer
        size, start, caught = trainer.args.per_device_train_batch_size, 0, []
        with replayed_rng(rng_states, trainer.accelerator.device):
            for first in range(0, len(valid), size):
                rows = slice(first, first + size)
                hook = trainer._find_backbone().register_forward_hook(
                    lambda module, args, output, rows=rows: caught.append(
                        predicting_states(output.last_hidden_state, valid[rows])
                    )
                )
                try:
                    log_probs = trainer._score(batch, rows)[valid[rows]]
                finally:
                    hook.remove()
                states = caught.pop()
                yield slice(start, start + len(states)), states, log_probs
                start += len(states)

    def _on_all_ranks(self, *flags: bool) -> list[bool]:
        flags = torch.tensor(flags, dtype=torch.float32, device=self._trainer.accelerator.device)
        return all_reduce(flags, "MIN").bool().tolist()
