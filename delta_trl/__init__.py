"""
Token credit for TRL's `GRPOTrainer`: the advantage of a response becomes an advantage for each of its tokens. The
default rule is DelTA (arXiv 2605.21467).
"""

from .version import __version__


__all__ = ["DeltaGRPOConfig", "DeltaGRPOTrainer", "__version__"]


def __getattr__(name: str) -> type:
    # TRL takes seconds to import; `delta_trl.credit` and the workers of `delta_trl.rewards` do without it
    if name == "DeltaGRPOConfig":
        from .trainer.config import DeltaGRPOConfig

        return DeltaGRPOConfig
    if name == "DeltaGRPOTrainer":
        from .trainer.trainer import DeltaGRPOTrainer

        return DeltaGRPOTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
