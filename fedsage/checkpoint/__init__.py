"""What it takes to go on after a stop, on disk."""
