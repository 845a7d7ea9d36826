"""The model card, for any `GRPOTrainer`: base model, data, settings and results, also of local models and data."""

import json
import textwrap
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from datasets import Dataset
from huggingface_hub import ModelCard
from huggingface_hub.utils import HFValidationError, validate_repo_id
from transformers.trainer_utils import has_length
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import get_config_model_id

from ..evaluation.sampling import describe_training
from ..report.run import training_reward
from ..version import __version__
from .settings import VERSIONS


@dataclass(frozen=True)
class Paper:
    """A paper to cite: its name in the text, title, arXiv number, BibTeX key and authors."""

    name: str
    title: str
    id: str
    key: str
    author: str


class DetailedModelCard(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] whose model card holds base model, data, rewards, the main settings, versions and what was
    measured. Metadata names only what can be on the hub.

    Attributes:
        dataset_name, eval_dataset_name (`str`, *optional*): Hub ids or paths.
        method (`dict[str, str]`): Rows that a subclass adds to the table of settings.
        paper ([`Paper`], *optional*): The paper of a subclass's method.
    """

    dataset_name: str | None = None
    eval_dataset_name: str | None = None
    method: dict[str, str] = {}  # noqa: RUF012 (as in TRL; replaced, never changed)
    paper: Paper | None = None

    def create_model_card(self, model_name=None, dataset_name=None, tags=None):
        dataset = dataset_name or self.dataset_name
        super().create_model_card(model_name, dataset if _may_be_on_the_hub(dataset) else None, tags)
        if not self.is_world_process_zero():
            return
        path = Path(self.args.output_dir, "README.md")
        card = ModelCard.load(path)
        if not _may_be_on_the_hub(get_config_model_id(self.model.config)):
            card.data.base_model = None
        card.data.tags.sort()
        card.data.pop("licence")  # TRL's placeholder
        card.text = _text(self, card, model_name or path.parent.resolve().name, dataset)
        card.save(path)


def _text(trainer: DetailedModelCard, card: ModelCard, name: str, dataset: str | None) -> str:
    base = get_config_model_id(trainer.model.config)
    base = _link(base) if base else "a model without a name"
    data = _link(dataset, "datasets/") if dataset else "not named"
    if has_length(trainer.train_dataset):
        data += f", {len(trainer.train_dataset):,} rows"
    weights = zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True)
    rewards = (f"`{func}`" if weight == 1 else f"{weight:g} × `{func}`" for func, weight in weights)
    trackers = [line.strip() for line in card.text.splitlines() if line.startswith("[<img")]
    parts = [
        f"# {name}",
        f"Trained from {base} with [delta_trl](https://github.com/delta-trl/delta-trl) and "
        "[TRL](https://github.com/huggingface/trl).",
        f"## Quick start\n\n{_quick_start(trainer)}",
        "## Training",
        *trackers,
        _table(
            {
                "base model": base,
                "dataset": data,
                "rewards": ", ".join(rewards),
                **trainer.method,
                **_settings(trainer.args),
            }
        ),
        f"## Results\n\n{_results(trainer)}",
        "## Versions",
        "\n".join([f"- delta_trl: {__version__}", *(f"- {package}: {version(package)}" for package in VERSIONS)]),
        "## Citations",
    ]
    if trainer.paper:
        parts.append(f"Cite {trainer.paper.name} as:\n\n{_citation(trainer.paper)}")
    parts.append(card.text[card.text.index("Cite TRL as:") :].strip())
    return "\n" + "\n\n".join(parts) + "\n"


def _quick_start(trainer: DetailedModelCard) -> str:
    model = trainer.hub_model_id or str(Path(trainer.args.output_dir).resolve())
    data = trainer.train_dataset
    row = data[0] if isinstance(data, Dataset) else {}  # a stream is not read; environments make the prompts
    chat = (
        not isinstance(row.get("prompt"), str) and getattr(trainer.processing_class, "chat_template", None) is not None
    )
    prompt = '[{"role": "user", "content": "What is 27 + 15?"}]' if chat else '"27+15="'
    note = "" if chat else "  # plain text, in the form of the training data"
    return textwrap.dedent(f"""\
        ```python
        from transformers import pipeline

        generator = pipeline("text-generation", model={json.dumps(model)})
        prompt = {prompt}{note}
        output = generator(prompt, max_new_tokens={trainer.args.max_completion_length}, return_full_text=False)
        print(output[0]["generated_text"])
        ```""")


def _settings(args: GRPOConfig) -> dict[str, str]:
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    return {
        "loss": f"`{args.loss_type}`, epsilon {args.epsilon:g}, epsilon_high {high:g}, beta {args.beta:g}",
        "rollout batch": f"{args.generation_batch_size} completions, {args.num_generations} of each prompt, at most "
        f"{args.max_completion_length} tokens, {describe_training(args)}",
        "learning rate": f"{args.learning_rate:g}, {args.lr_scheduler_type.value}",
        "seed": str(args.seed),
    }


def _results(trainer: DetailedModelCard) -> str:
    """What the last logged rollout batches and the last evaluation of the saved model measured."""
    state, history = trainer.state, trainer.state.log_history
    sampling = describe_training(trainer.args)
    lines = [f"{state.global_step} optimiser steps."]
    is_best = trainer.args.load_best_model_at_end and state.best_model_checkpoint
    if is_best:
        history = [entry for entry in history if entry["step"] <= state.best_global_step]
    trained = [entry for entry in history if entry.get("reward") is not None]
    if trained:
        last = trained[-1]
        reward = training_reward(last)
        lines.append(f"Training, last logged at step {last['step']}: mean reward {reward:.3f}, {sampling}.")
    evaluated = [entry for entry in history if entry.get("eval_avg_at_k") is not None]
    if evaluated:
        last, k = evaluated[-1], trainer.num_generations_eval
        on = f" on {_link(trainer.eval_dataset_name, 'datasets/')}" if trainer.eval_dataset_name else ""
        lines.append(f"Evaluation{on} at step {last['step']}: avg@{k} {last['eval_avg_at_k']:.3f}, {sampling}.")
    if is_best:
        lines.append(f"The model is that of {Path(state.best_model_checkpoint).name}, the best one.")
    return "\n".join(f"- {line}" for line in lines)


def _citation(paper: Paper) -> str:
    return textwrap.dedent(f"""\
        ```bibtex
        @article{{{paper.key},
            title  = {{{{{paper.title}}}}},
            author = {{{paper.author}}},
            year   = 20{paper.id[:2]},
            eprint = {{arXiv:{paper.id}}},
        }}
        ```""")


def _table(rows: dict[str, str]) -> str:
    cells = (f"| {name} | {' '.join(text.split()).replace('|', chr(92) + '|')} |" for name, text in rows.items())
    return "\n".join(["| | |", "|---|---|", *cells])


def _link(name: str, kind: str = "") -> str:
    return f"[{name}](https://huggingface.co/{kind}{name})" if _may_be_on_the_hub(name) else f"`{name}`"


def _may_be_on_the_hub(name: str | None) -> bool:
    """Whether it is the id of a repository rather than a path."""
    if not name or Path(name).exists():
        return False
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True
