"""The error of every command, in a module that imports nothing heavy."""


class UsageError(ValueError):
    """A mistake in a recipe, on the command line or in the data. A command prints it without a traceback."""
