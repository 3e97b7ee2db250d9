"""Mechanisms on tensors that keep an owner's numbers from being read."""
