"""DelTA token credit assignment (arXiv 2605.21467) for TRL's GRPOTrainer."""

__version__ = "0.1.0.dev0"

__all__ = ["DeltaGRPOConfig", "DeltaGRPOTrainer"]


def __getattr__(name: str):
    # TRL takes seconds to import; `delta_trl.credit` and the workers of `delta_trl.rewards` do without it
    if name == "DeltaGRPOConfig":
        from .config import DeltaGRPOConfig

        return DeltaGRPOConfig
    if name == "DeltaGRPOTrainer":
        from .trainer import DeltaGRPOTrainer

        return DeltaGRPOTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
