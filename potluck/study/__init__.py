"""Studies: the files people write, and the folders runs leave behind."""
