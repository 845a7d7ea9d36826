"""`delta-trl explain`: token credit of completions that one already has, without training."""
