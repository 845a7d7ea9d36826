"""See what token credit does to a run: `delta-trl inspect`, and [`token_heatmap`] for notebooks."""

from .heatmap import TokenHeatmap, token_heatmap
from .page import write_report
from .reader import Run, read_run


__all__ = ["Run", "TokenHeatmap", "read_run", "token_heatmap", "write_report"]
