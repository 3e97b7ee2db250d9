"""The verbs of the command line, each one thin."""
