"""Where graphs come from: datasets, files, folders, other libraries."""
