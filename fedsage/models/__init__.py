"""Weights and formulas; knows graphs, knows no owners."""
