"""Chat completions: how they are composed, masked and kept."""
