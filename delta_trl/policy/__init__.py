"""The policy's scoring passes: trimmed, recorded, cached, recomputed."""
