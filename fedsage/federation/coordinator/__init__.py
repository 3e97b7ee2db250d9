"""The coordinator's side: submit a run, follow it, fetch its result."""
