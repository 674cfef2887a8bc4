"""A request with memory, read once: who calls, whose memory, which mode, what its target takes."""
