"""The `Embed` port, texts to vectors, and the local model that implements it."""
