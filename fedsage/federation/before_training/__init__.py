"""What parties agree on between themselves before training."""
