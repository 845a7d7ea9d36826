"""
The options of a command: read from a recipe (YAML) and the command line, and checked. Options that name a user's own
function by a dotted path are imported here.
"""
