"""One known attack in each file: who attacks, what they see, and how far they get."""
