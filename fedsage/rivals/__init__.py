"""Methods of others, each in one file, written from its paper."""
