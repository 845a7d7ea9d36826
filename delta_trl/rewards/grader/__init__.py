"""
Decides whether a completion's final answer equals the gold, as mathematics and not as text. Answers are read and
compared in worker processes, because a hostile one can take for ever.

`extraction.py` finds an answer in the completion. `client.py` hands it with its gold to a worker (`process.py`).
There, `normalization.py` brings both into one spelling, and `reading.py` reads each once into typed values
(`values.py`), with `lists.py`, `sets.py`, `units.py`, `words.py` and `numerals.py` for the types. `comparison.py`
compares the values, in `expressions.py` at random points, and `finished.py` asks whether the answer is worked out.
"""
