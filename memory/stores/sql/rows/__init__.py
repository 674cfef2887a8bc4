"""One module for each table or subject: its rows read and written in a transaction."""
