"""What an owner allows: its policy, and its decision on a run."""
