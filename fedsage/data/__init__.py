"""Where graphs come from: datasets, files, folders and other libraries."""
