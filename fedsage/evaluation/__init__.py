"""How good models and mended graphs are; never imported by training code."""
