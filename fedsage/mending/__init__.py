"""Ways of mending, one file each: messages, owners' procedures, the server's side, words."""
