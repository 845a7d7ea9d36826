"""Scoring passes of a policy: trimmed, recorded, their hidden states kept."""
