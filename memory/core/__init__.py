"""Core memory (MemGPT's term): the blocks in every prompt, and edits of them. Pure."""
