"""One self-contained HTML file from result files; training never imports it."""
