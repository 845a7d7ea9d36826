"""`DeltaGRPOTrainer` and its options."""

from . import trl_contracts


trl_contracts.check()  # before the modules that need a TRL as in its list

from .config import DeltaGRPOConfig  # noqa: E402
from .trainer import DeltaGRPOTrainer  # noqa: E402


__all__ = ["DeltaGRPOConfig", "DeltaGRPOTrainer"]
