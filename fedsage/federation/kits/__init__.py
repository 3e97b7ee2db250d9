"""Startup kits: what each party of a federation holds, and who belongs to it."""
