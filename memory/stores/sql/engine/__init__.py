"""The database itself: tables, connections, transactions, statements, a driver for each kind."""
