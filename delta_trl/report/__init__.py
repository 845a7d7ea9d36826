"""
`delta-trl inspect`: a run's curves, and completions whose tokens are shaded by their credit, as one HTML file.
[`token_heatmap`] shows the same in notebooks.
"""

from .heatmap import TokenHeatmap, token_heatmap
from .page import write_report
from .reader import Run, read_run


__all__ = ["Run", "TokenHeatmap", "read_run", "token_heatmap", "write_report"]
