"""
The methods of TRL's trainer that ours override or call, and their parameters. A TRL that has changed one is refused at
import. What only a run shows, tests/test_trl_contracts.py tests.
"""

import inspect
from importlib.metadata import version

from trl import GRPOTrainer


TESTED = "1.16"  # that of constraints.txt
# The first ones, in order. Ours pass on any others, or leave them at their defaults.
PARAMETERS = {
    "__init__": "self, model, reward_funcs, args",
    "_generate_and_score_completions": "self, inputs",
    "_get_per_token_logps_and_entropies": "self, model, input_ids, attention_mask, logits_to_keep, batch_size",
    "_compute_loss": "self, model, inputs",
    "_prepare_inputs": "self, generation_batch",
    "_calculate_rewards": "self, inputs, prompts, completions, completion_ids_list",
    "_generate": "self, prompts",
    "_get_train_sampler": "self, dataset",
    "create_model_card": "self",
    "create_accelerator_and_postprocess": "self",
    "train": "self, resume_from_checkpoint",
    "_run_epoch": "self, model, epoch, train_dataloader",
    "_get_grad_norm": "self, model, grad_norm",
    "_save_checkpoint": "self, model, trial",
    "save_model": "self, output_dir, _internal_call",
    "_push_from_checkpoint": "self, checkpoint_folder",
    "_load_optimizer_and_scheduler": "self, checkpoint",
    "_get_output_dir": "self, trial",
}


def check() -> None:
    """Raise `ImportError` if the installed TRL has changed a method in the list."""
    changed = []
    for name, expected in PARAMETERS.items():
        method = getattr(GRPOTrainer, name, None)
        parameters = ", ".join(inspect.signature(method).parameters) if method else "nothing: it is gone"
        if not f"{parameters}, ".startswith(f"{expected}, "):
            changed.append(f"- GRPOTrainer.{name} takes ({parameters}), expected ({expected})\n")
    if changed:
        raise ImportError(
            f"delta_trl does not work with TRL {version('trl')} and transformers {version('transformers')}:\n"
            f"{''.join(changed)}It was tested with TRL {TESTED}: pip install 'trl=={TESTED}.*'",
            name="trl",
        )
