"""What a run records of its token credit, in files that the report reads."""
