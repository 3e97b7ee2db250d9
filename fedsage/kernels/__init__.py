"""Compiled code for CPUs: arrays in, arrays out. ``door.py`` is the only entrance."""
