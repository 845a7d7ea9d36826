"""Recorded token credit for the experiment trackers of `report_to`, on the main process."""

from importlib import import_module

import pandas as pd
from transformers.integrations import TensorBoardCallback


EXTREMES = 5  # tokens listed with the highest and the lowest coefficients
NAME = "token_credit"


def track(rows: list[dict], step: int, trainer) -> None:
    """Send the recorded completions of a rollout batch to those trackers in use that show tables."""
    report_to = trainer.args.report_to
    for name in {"wandb", "trackio"} & set(report_to):  # trackio has the functions of wandb
        tracker = import_module(name)
        if name == "trackio" or tracker.run is not None:
            tracker.log({NAME: tracker.Table(dataframe=summary(rows, step)), "train/global_step": step})
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.tb_writer is not None:
            to_tensorboard(rows, step, callback.tb_writer)


def to_tensorboard(rows: list[dict], step: int, writer) -> None:
    """A text with the table, and the coefficients' distribution in winning and in losing completions."""
    table = summary(rows, step).astype(str).map(lambda cell: cell.replace("|", "\\|").replace("\n", "<br>"))
    lines = [table.columns, ["---"] * len(table.columns), *table.to_numpy()]
    writer.add_text(NAME, "\n".join(f"| {' | '.join(line)} |" for line in lines), step)
    for side, sign in (("positive", 1), ("negative", -1)):
        values = [value for row in rows if row["advantage"] * sign > 0 for value in row["coefficients"]]
        if values:
            writer.add_histogram(f"{NAME}/coefficients_{side}", pd.Series(values).to_numpy(), step)


def summary(rows: list[dict], step: int) -> pd.DataFrame:
    """One line per completion, with the tokens of the highest and the lowest coefficients."""
    table = []
    for row in rows:
        ranked = sorted(zip(row["coefficients"], row["tokens"], strict=True), key=lambda pair: -pair[0])
        table.append(
            {
                "step": step,
                "prompt": row["prompt"],
                "completion": row["completion"],
                "reward": row["reward"],
                "advantage": row["advantage"],
                "mean_token_coefficient": sum(row["coefficients"]) / max(len(row["coefficients"]), 1),
                "highest": joined(ranked[:EXTREMES]),
                "lowest": joined(ranked[::-1][:EXTREMES]),
            }
        )
    return pd.DataFrame(table)


def joined(tokens: list[tuple[float, str]]) -> str:
    return ", ".join(f"{text!r} {coefficient:.2f}" for coefficient, text in tokens)
