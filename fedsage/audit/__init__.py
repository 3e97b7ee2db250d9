"""Attacks on our own runs: what a server, an owner or an outsider can find out or break."""
