"""Algorithm 1; knows no transport."""
