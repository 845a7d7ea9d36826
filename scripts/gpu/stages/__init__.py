"""The stages of scripts/gpu/check.py, one module each with `run(stage)`."""
