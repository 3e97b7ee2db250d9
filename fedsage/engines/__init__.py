"""Transport only; not one formula."""
