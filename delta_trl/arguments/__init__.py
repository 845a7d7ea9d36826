"""Reads the options of a call, from recipes and command lines, and imports what dotted paths name."""
