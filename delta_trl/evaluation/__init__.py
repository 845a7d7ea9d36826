"""Evaluation on benchmarks: `delta-trl eval`. Scores with the rewards that training uses."""

from .metrics import avg_at_k, bootstrap_interval, compare_runs, paired_bootstrap, pass_at_k


__all__ = ["avg_at_k", "bootstrap_interval", "compare_runs", "paired_bootstrap", "pass_at_k"]
