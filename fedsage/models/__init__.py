"""Weights and formulas; uses graphs, knows nothing of owners."""
