"""What happens to all that somebody owns: erasure, renaming, merging, expiry."""
