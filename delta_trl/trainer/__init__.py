"""`DeltaGRPOTrainer` and its options."""

from . import trl_signatures


trl_signatures.check()

from .config import DeltaGRPOConfig  # noqa: E402
from .trainer import DeltaGRPOTrainer  # noqa: E402


__all__ = ["DeltaGRPOConfig", "DeltaGRPOTrainer"]
