"""Reads and checks the options of a call: recipes, command lines, dotted paths."""
