"""Training by changes: a round is sent as how far it moves φ, in integers, not as φ itself."""
