"""Recorded token credit for those experiment trackers of `report_to` that show tables, on the main process."""

from importlib import import_module

import pandas as pd


EXTREMES = 5  # tokens listed with the highest and the lowest coefficients


def track(rows: list[dict], step: int, trainer) -> None:
    """Send the recorded completions of a rollout batch to wandb and trackio, as far as they are in use."""
    for name in {"wandb", "trackio"} & set(trainer.args.report_to):  # trackio has the functions of wandb
        tracker = import_module(name)
        if name == "trackio" or tracker.run is not None:
            table = tracker.Table(dataframe=pd.DataFrame([_summary(row, step) for row in rows]))
            tracker.log({"token_credit": table, "train/global_step": step})


def _summary(row: dict, step: int) -> dict:
    """A completion with the tokens of the highest and the lowest coefficients."""
    ranked = sorted(zip(row["coefficients"], row["tokens"], strict=True), key=lambda pair: -pair[0])
    listed = [f"{text!r} {coefficient:.2f}" for coefficient, text in ranked]
    return {
        "step": step,
        **{name: row[name] for name in ("prompt", "completion", "reward", "advantage")},
        "mean_token_coefficient": sum(row["coefficients"]) / max(len(row["coefficients"]), 1),
        "highest": ", ".join(listed[:EXTREMES]),
        "lowest": ", ".join(listed[::-1][:EXTREMES]),
    }
