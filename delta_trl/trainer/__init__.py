"""`DeltaGRPOTrainer` and its options."""

from .config import DeltaGRPOConfig
from .trainer import DeltaGRPOTrainer


__all__ = ["DeltaGRPOConfig", "DeltaGRPOTrainer"]
