"""Grades mathematics. In the order in which an answer passes:

`extraction.py` finds it in the completion. `checks.py` hands it with its gold to a worker (`process.py`), where
`equivalence.py` brings both into one spelling (`normalization.py`) and compares them by type: `words.py`, `sets.py`,
`lists.py`, `units.py`, `numerals.py`, `expressions.py` (read by `parsing.py`). `forms.py` refuses what is unfinished.
"""
