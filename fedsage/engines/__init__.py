"""Transport only; no formulas."""
