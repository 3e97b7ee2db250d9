"""Attacks on our own runs: what a server, an owner or anybody can find out or break."""
