"""Grades mathematics: finds the final answer of a completion and compares it with the gold.

The trainer's process reads answers (`extraction.py`) and hands them to worker processes
(`checks.py`), in which `equivalence.py` compares them with the gold.
"""
