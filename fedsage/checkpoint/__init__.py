"""What a run needs to continue after a stop, on disk."""
