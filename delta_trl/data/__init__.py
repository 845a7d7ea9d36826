"""Datasets, and how the rows of each become `prompt` and `solution` or `tests`."""
