"""One known attack in each file. It says who attacks, what is seen, and how far that leads."""
