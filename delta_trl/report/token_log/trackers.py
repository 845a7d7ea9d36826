"""Recorded token credit for those experiment trackers of `report_to` that show texts, on the main process."""

import math
from importlib import import_module

import pandas as pd

from ..heatmap import token_heatmap


EXTREMES = 5  # tokens listed with the highest and the lowest coefficients


def track(rows: list[dict], step: int, trainer) -> None:
    """Send the recorded completions of a rollout batch to W&B and Trackio, as far as they are in use."""
    trackers = trainer.args.report_to
    entry = {"train/global_step": step}
    if "wandb" in trackers and (wandb := import_module("wandb")).run is not None:
        texts = ("prompt", "completion")
        table = pd.DataFrame([{"step": step, **{name: row[name] for name in texts}, **_summary(row)} for row in rows])
        wandb.log({"token_credit": wandb.Table(dataframe=table), **entry})
    if "trackio" in trackers:
        trackio = import_module("trackio")
        shaded = "<hr>".join(token_heatmap(row["tokens"], row["coefficients"]).html for row in rows)
        trackio.log({"token_credit": trackio.Html(shaded), **entry})


def _summary(row: dict) -> dict:
    """A completion's numbers, and its tokens of the highest and the lowest coefficients."""
    pairs = zip(row["coefficients"], row["tokens"], strict=True)
    ranked = sorted((pair for pair in pairs if math.isfinite(pair[0])), key=lambda pair: -pair[0])
    listed = [f"{text!r} {coefficient:.2f}" for coefficient, text in ranked]
    return {
        **{name: row[name] for name in ("reward", "advantage")},
        "mean_token_coefficient": sum(coefficient for coefficient, _ in ranked) / max(len(ranked), 1),
        "highest": ", ".join(listed[:EXTREMES]),
        "lowest": ", ".join(listed[::-1][:EXTREMES]),
    }
