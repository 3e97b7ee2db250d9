"""Owners on separate machines: kits, start, stop, run; real processes with mutual TLS."""
