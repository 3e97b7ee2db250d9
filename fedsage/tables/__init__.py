"""An owner's own tables: read, checked, written."""
