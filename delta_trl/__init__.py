"""DelTA token credit assignment (arXiv 2605.21467) for TRL's GRPOTrainer."""

__version__ = "0.1.0.dev0"
