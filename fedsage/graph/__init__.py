"""What a graph is and what can be done to it; no weights, no training."""
