"""The commands of the command line, each of them thin."""
