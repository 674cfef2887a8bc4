"""Core memory (MemGPT's term): the blocks that stand in every prompt, and edits of them. Pure."""
