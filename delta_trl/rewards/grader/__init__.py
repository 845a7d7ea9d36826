"""What judges mathematics: from a completion to its final answer, and whether that equals the gold.

The trainer's process reads answers (`extraction.py`, `surroundings.py`) and hands them to worker processes
(`checks.py`), in which `equivalence.py` compares them with the gold.
"""
