"""Hidden sums: owners mask what they send, and the server sees only the total."""
