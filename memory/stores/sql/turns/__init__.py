"""How a turn is read from the store, and how it ends there."""
