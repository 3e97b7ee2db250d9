"""What a graph is and what can be done with it; no weights, no training."""
