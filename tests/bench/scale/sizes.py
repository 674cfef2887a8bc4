"""How many bytes a row takes, by table and index."""

from __future__ import annotations

from dataclasses import dataclass

from tests.postgres_server import PostgresServer

FILLED = (
    "messages", "message_terms", "nodes", "usage", "conversations", "epochs", "explains", "scopes",
)  # fmt: skip
SQL = """
SELECT c.relname, c.relname, pg_table_size(c.oid) FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
UNION ALL SELECT t.relname, i.relname, pg_relation_size(i.oid)
FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
WHERE t.relnamespace = 'public'::regnamespace ORDER BY 1, 2"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """parts: bytes of the table, with its long values, and of each index, by name."""

    rows: int
    parts: dict[str, int]

    @property
    def row_bytes(self) -> float:
        return sum(self.parts.values()) / self.rows


def table_sizes(server: PostgresServer, database: str) -> dict[str, TableSize]:
    """Return the sizes of the tables that are filled."""
    parts: dict[str, dict[str, int]] = {name: {} for name in FILLED}
    for table, name, size in server.run(SQL, database=database):
        if table in parts:
            parts[table][name] = size
    counts = {
        name: server.run(f"SELECT count(*) FROM {name}", database=database)[0][0] for name in FILLED
    }
    return {name: TableSize(counts[name], found) for name, found in parts.items()}
