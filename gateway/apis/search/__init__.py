"""The vendors' own search, where a tool of the operator stands in for it. Pure."""
