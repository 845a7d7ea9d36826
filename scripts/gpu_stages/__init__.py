"""The stages of scripts/gpu_check.py, one module each with `run(stage)`."""
