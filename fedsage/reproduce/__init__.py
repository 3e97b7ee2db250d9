"""The paper's own values as data."""
