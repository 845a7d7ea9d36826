"""Recorded token credit: what is written, and where it is shown."""
