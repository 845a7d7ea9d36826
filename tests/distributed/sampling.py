"""Dynamic sampling with groups that lie across processes, and the same run resumed."""

from pathlib import Path

import pyarrow.parquet as pq

from tests.trainer.test_dynamic_sampling import CREDIT, G, run, texts
from tests.trainers import make_trainer


GROUPS = 3


def sample(folder: Path, model: Path, processes: int) -> dict[str, list]:
    """Logs of the whole and of the resumed run, and the whole one's tables of completions."""
    options = {"per_device_train_batch_size": GROUPS * G // processes, "max_steps": 4, "optim": "sgd"}
    options |= {"learning_rate": 0.5, "save_strategy": "steps", "save_steps": 2, "model": str(model)}
    whole = run(make_trainer, folder / "run", texts(13), **CREDIT[0], **options)
    files = sorted((folder / "run" / "completions").iterdir()) if whole.accelerator.is_main_process else []
    tables = [pq.read_table(path).to_pylist() for path in files]
    resumed = run(make_trainer, folder / "run", texts(13), resume="checkpoint-2", **CREDIT[0], **options)
    logs = ([entry for entry in trainer.state.log_history if "loss" in entry] for trainer in (whole, resumed))
    return {**dict(zip(("whole", "resumed"), logs, strict=True)), "tables": tables}
