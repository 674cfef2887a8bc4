"""How bytes and times grow with the memory on Postgres."""
