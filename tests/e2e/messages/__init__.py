"""The Messages API with memory, over real sockets."""
