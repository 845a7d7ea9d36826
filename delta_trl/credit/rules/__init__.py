"""The rules of token credit. `names.py` knows them all."""
