"""An owner's own tables: reading, checking, writing."""
