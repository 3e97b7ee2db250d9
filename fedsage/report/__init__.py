"""One self-contained HTML page made from result files; training never imports it."""
