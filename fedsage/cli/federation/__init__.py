"""The commands of ``fedsage federation``."""
