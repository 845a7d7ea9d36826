"""
`delta-trl eval`: sample a model on benchmarks, and score the completions with the rewards that training uses. Two
models, or the arms of a comparison, are compared by paired statistics.
"""
