"""Judges; never imported by training code."""
