"""An owner's side of a federated run."""
