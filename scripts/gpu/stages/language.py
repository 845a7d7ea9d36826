"""
A real language model: SmolLM2-135M-Instruct adds three digits, trained in full with DAPO, with DelTA, and with either
side weighed less; three seeds each, of at most 40 rollout batches of 64 completions. 5 GB of GPU memory a process.
"""

import string
import sys
from pathlib import Path

from ...studies.plans import rule
from ...studies.study import LanguageRunner
from ...studies.tasks.language import MODEL
from ...studies.tasks.models import make_model, make_tokenizer
from ...studies.tasks.task import END
from .comparison import VARIANTS, Comparison
from .stage import Stage


def take_model(stage: Stage, size: dict, folder: Path) -> None:
    """Link the model; in a dry run, make one with random weights and a token for each character."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not stage.dry:
        folder.unlink(missing_ok=True)
        folder.symlink_to(MODEL)
        return
    tokenizer = make_tokenizer(["<pad>", END, *string.printable], ".", 256)
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}={% endfor %}"
    tokenizer.save_pretrained(folder)
    make_model(tokenizer, 32, 1, 256).save_pretrained(folder)


COMPARISON = Comparison(
    name="language",
    variants={**VARIANTS, "winners_0.1": rule("side_weights", winners=0.1, losers=1.0)},
    learning_rate=1e-5,
    size={"task": "sums", "rollouts": 40, "seeds": 3, "problems": 128},
    dry_size={"task": "sums", "rollouts": 1, "seeds": 1, "problems": 4},
    model=lambda size: MODEL.name,
    prepare=take_model,
    runner=LanguageRunner,
)


def run(stage: Stage) -> None:
    if not stage.dry and not (MODEL / "LICENSE").exists():
        stage.left_out.append(f"{MODEL} is not there: `make language-model`, or README.md, Without network")
        return
    COMPARISON.run(stage)


if __name__ == "__main__":
    COMPARISON.work(*sys.argv[1:])
