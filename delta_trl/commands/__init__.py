"""
The commands `delta-trl train`, `compare`, `inspect` and `explain`. `eval` and `audit` are in the packages `evaluation`
and `audit`.
"""
