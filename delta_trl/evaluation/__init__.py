"""Evaluation on benchmarks: `delta-trl eval`. Scores with the rewards that training uses."""
