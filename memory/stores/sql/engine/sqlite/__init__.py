"""SQLite: its connections, driver, search index and maintenance."""
