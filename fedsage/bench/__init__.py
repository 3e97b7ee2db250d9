"""Speed, memory and bytes as ratios against a baseline timed in the same run."""
