"""The console: a page for the people of one party."""
