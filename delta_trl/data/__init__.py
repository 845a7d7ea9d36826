"""Datasets, and how their rows become `prompt` and `solution` or `tests`."""
