"""
`DeltaGRPOTrainer`, which is TRL's `GRPOTrainer` with token credit, and its options. `checkpoints.py` and
`finite_updates.py` have base classes that work on any `GRPOTrainer`.
"""

from . import trl_signatures


trl_signatures.check()

from .config import DeltaGRPOConfig  # noqa: E402
from .trainer import DeltaGRPOTrainer  # noqa: E402


__all__ = ["DeltaGRPOConfig", "DeltaGRPOTrainer"]
