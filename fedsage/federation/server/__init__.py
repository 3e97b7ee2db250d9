"""The server's side of a federated run."""
