"""
Loads datasets for training and evaluation, and gives them the columns `prompt` and `solution` or `tests`. Checks them
against the rewards before a run begins.
"""
