"""Scoring completions: without padding, recorded, and by a model without a trainer."""
