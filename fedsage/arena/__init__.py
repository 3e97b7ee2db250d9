"""The arena: methods on the same owners, splits, seeds and budget, and what came of it."""
