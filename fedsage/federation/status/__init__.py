"""What a federation is doing, and how people look it up."""
