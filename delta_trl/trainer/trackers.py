"""Recorded token credit for those experiment trackers of `report_to` that show pages, on the main process."""

from importlib import import_module

from ..report.heatmap import token_heatmap


TRACKERS = ("wandb", "trackio")  # modules that have `Html` and `log` for the run that transformers began


def track(rows: list[dict], step: int, report_to: list[str]) -> None:
    """Send the recorded completions of a rollout batch to the trackers in use, as one page of shaded tokens."""
    heatmaps = [token_heatmap(row["tokens"], row["coefficients"]) for row in rows]
    page = "<hr>".join(heatmap.html for heatmap in heatmaps)
    for name in TRACKERS:
        if name in report_to:
            tracker = import_module(name)
            entry = {"token_credit": tracker.Html(page), "train/global_step": step}
            tracker.log(entry)
