"""Reads what a turn usually needs on Postgres with one statement, which is one round trip.

`turn_reader.snapshot` asks for one thing after the other: eight to fifteen statements and a
transaction around them. Here one statement reads all that it would ask for in the usual case, and
answers it. What was not foreseen is not asked for: then the transaction reads everything, since
two statements are not one moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from types import SimpleNamespace
from typing import Any

import msgspec
from sqlalchemy import Connection, LargeBinary, Table

from memory.conversation.matching import LOOKS, RequestHistory
from memory.scope import KIND_MARK
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SILENT_SECONDS, sql_driver
from memory.stores.sql.engine.statements import batch_values, execute_sql, key_list
from memory.stores.sql.rows import layers, openings, scopes, shared_members
from memory.stores.sql.rows.blocks import SHELF
from memory.stores.sql.turns import turn_reader
from memory.stores.sql.turns.foreseen import ForeseenRows, NotForeseen, foresee
from memory.stores.sql.turns.turn_reader import CANDIDATES, Snapshot, SnapshotQuery

# Of the newest nodes that were found.
EPOCHS = 4
# Nodes found, whose carriers are read.
CARRYING = 2
decode = msgspec.json.decode
NODES = f"""SELECT n.* FROM nodes n, s WHERE n.scope_id = s.id AND {{}}
  ORDER BY n.id DESC LIMIT {CANDIDATES}"""
# What the layers of the user are, as `layers` has it.
READ = """NOT EXISTS (SELECT 1 FROM user_policies u WHERE u.tenant = $1::text
  AND u."user" = $2::text AND u.layers IS NOT NULL AND u.layers NOT LIKE '%{}%')"""
TEAMS = 'SELECT tm.team FROM team_members tm WHERE tm.tenant = $1::text AND tm."user" = $2::text'
LISTED = f"""p.tenant = $1::text AND p.name = $14::text AND (
  p.everyone AND $12::text = 'everyone' OR EXISTS (SELECT 1 FROM project_members pm
    WHERE pm.tenant = p.tenant AND pm.project = p.name AND (
      pm.kind = 'user' AND pm.name = $2::text OR pm.kind = 'team' AND pm.name IN ({TEAMS}))))"""
SQL = f"""
WITH s AS MATERIALIZED (
  SELECT id, edits, version FROM scopes
  WHERE tenant = $1::text AND {{user}} AND agent = $3::text),
answers AS ({NODES.format("n.digest = ANY($4::bytea[]) AND n.state <> 'open'")}),
exact AS ({NODES.format("n.digest = $5::bytea AND n.chain = $6::bytea AND n.state <> 'open'")}),
attempt AS ({NODES.format("n.request = $7::bytea")}),
waiting AS ({NODES.format("n.state <> 'done' AND n.state = 'open' AND n.asked = $8::bytea")}),
found AS (
  SELECT id, conversation, epoch, carriers FROM answers
  UNION SELECT id, conversation, epoch, carriers FROM exact
  UNION SELECT id, conversation, epoch, carriers FROM attempt
  UNION SELECT id, conversation, epoch, carriers FROM waiting)
SELECT s.id, s.edits, s.version,
  (SELECT generation FROM generations WHERE owner = $9::bytea),
  (SELECT json_agg(x)::text FROM (SELECT * FROM blocks WHERE scope_id = s.id AND branch = 0) x),
  (SELECT json_agg(x ORDER BY id DESC)::text FROM answers x),
  (SELECT json_agg(x ORDER BY id DESC)::text FROM exact x),
  (SELECT json_agg(x ORDER BY id DESC)::text FROM attempt x),
  (SELECT json_agg(x ORDER BY id DESC)::text FROM waiting x),
  (SELECT json_agg(x)::text FROM (
    SELECT * FROM conversations WHERE scope_id = s.id AND name = $10::text
    UNION SELECT * FROM conversations
    WHERE scope_id = s.id AND id IN (SELECT conversation FROM found)) x),
  (SELECT json_agg(x)::text FROM (
    SELECT * FROM epochs WHERE scope_id = s.id AND id IN (
      SELECT epoch FROM (SELECT epoch FROM found ORDER BY id DESC LIMIT {EPOCHS}) q)) x),
  (SELECT json_agg(x ORDER BY id)::text FROM (
    SELECT * FROM nodes WHERE scope_id = s.id AND id IN (
      SELECT json_array_elements_text(carriers::json)::bigint FROM (
        SELECT carriers FROM found WHERE carriers IS NOT NULL ORDER BY id DESC LIMIT {CARRYING}
      ) q)) x),
  (SELECT array_agg(incarnation) FROM workers
    WHERE seen_at > extract(epoch FROM clock_timestamp()) - {SILENT_SECONDS} AND incarnation IN (
      SELECT holder FROM attempt UNION SELECT holder FROM waiting)),
  (SELECT json_agg(x ORDER BY id DESC)::text FROM (
    SELECT id, opening, task FROM conversations
    WHERE $11::boolean AND scope_id = s.id AND opening IS NOT NULL
    ORDER BY id DESC LIMIT {openings.READ}) x),
  (SELECT changes FROM shared_changes WHERE tenant = $1::text),
  (SELECT layered FROM shared_changes WHERE tenant = $1::text),
  (SELECT json_agg(x)::text FROM (
    SELECT m.kind, m.agent AS member_agent, m.name AS member_name, m.write, b.*
    FROM shared_members m
    JOIN shared_blocks b ON b.id = m.block_id
    WHERE m.tenant = $1::text AND NOT b.deleted AND (
      m.kind = 'user' AND m.name = $2::text AND m.agent IN ('', $13::text)
      OR m.kind = 'agent' AND m.name = $13::text
      OR m.kind = 'everyone' AND m.name = '' AND $12::text = 'everyone' AND {READ.format("tenant")}
      OR m.kind = 'team' AND m.name IN ({TEAMS}) AND {READ.format("team")}
      OR m.kind = 'project' AND m.name IN (SELECT p.name FROM projects p WHERE {LISTED})
        AND {READ.format("project")})
    ORDER BY b.id LIMIT {shared_members.ROWS}) x),
  (SELECT json_agg(json_build_array(x.kind, x.name, x.write, s.id, s.edits))::text FROM (
    SELECT 'project' AS kind, p.name, p.write FROM projects p
    WHERE {LISTED} AND {READ.format("project")}
    UNION ALL SELECT 'team', m.team, m.write FROM team_members m
    WHERE m.tenant = $1::text AND m."user" = $2::text AND {READ.format("team")}
    UNION ALL SELECT 'tenant', '', false
    WHERE $12::text = 'everyone' AND {READ.format("tenant")}) x
  LEFT JOIN scopes s ON s.tenant = $1::text AND s.agent = '{layers.AGENT}'
    AND s."user" = '{KIND_MARK}' || x.kind || ':' || x.name
  WHERE x.kind <> 'tenant' OR s.id IS NOT NULL)
FROM (SELECT 1) one LEFT JOIN s ON true"""
NAMED = SQL.format(user='"user" = $2::text')
UNNAMED = SQL.format(user='"user" IS NULL AND $2::text IS NULL')


def snapshot(conn: Connection, ask: SnapshotQuery) -> Snapshot | None:
    """Read what a turn needs; None where one statement does not tell it."""
    if ask.explicit and ask.turn.newest < 0 and not ask.resends:
        # Its history is stored here.
        return None
    prefetch = _Wanted(ask)
    row = execute_sql(conn, NAMED if ask.scope.is_named else UNNAMED, *prefetch.values())[0]
    with foresee(conn) as foreseen:
        prefetch.tell(conn, row, foreseen)
        try:
            return turn_reader.snapshot(conn, ask)
        except NotForeseen:
            return None


class _Wanted:
    """What the recognition of a request begins with."""

    def __init__(self, ask: SnapshotQuery) -> None:
        self._ask = ask
        turn = ask.turn
        self._shared = shared_members.seen_values(ask.scope)
        self.digests: list[bytes] = []
        self.exact_place: tuple[bytes, bytes] | None = None
        if turn.newest >= 0:
            turn.enter()
            if ask.scope.is_named:
                answer_indexes = list(islice(_spoken(turn), LOOKS[0]))
            else:
                answer_indexes = []
            self.digests = [turn.chain.digest(i) for i in answer_indexes]
            if answer_indexes:
                newest_index = answer_indexes[0]
            else:
                newest_index = turn.newest
            self.exact_place = (turn.chain.digest(newest_index), turn.chain.link(newest_index))

    def values(self) -> Sequence[Any]:
        """Return the parameters of the statement."""
        ask = self._ask
        digest, link = self.exact_place or (None, None)
        return (
            ask.scope.tenant,
            ask.scope.user,
            ask.scope.agent,
            self.digests,
            digest,
            link,
            ask.request,
            ask.turn.chain.end,
            ask.scope.owner,
            ask.explicit,
            ask.openings,
            self._shared["everyone"],
            ask.scope.agent_name,
            ask.scope.project,
        )

    def _tell_shared(self, row: Sequence[Any], foreseen: ForeseenRows) -> None:
        scope = self._ask.scope
        owner = {"owner": scope.owner, "tenant": scope.tenant}
        foreseen.put(scopes.WITH_CHANGES, owner, [(row[3], row[14], row[15])])
        foreseen.put(shared_members.SEEN, self._shared, list(_rows(t.shared_blocks, row[16])))
        if row[17]:
            viewer_layers = decode(row[17])
        else:
            viewer_layers = []
        foreseen.put(layers.LAYERS, layers.viewer_values(scope), viewer_layers)

    def tell(self, conn: Connection, row: Sequence[Any], foreseen: ForeseenRows) -> None:
        """Answer what `turn_reader.snapshot` will ask with a row of the statement."""
        ask, scope = self._ask, row[0]
        find, owner = scopes.FIND_UNNAMED, {"tenant": ask.scope.tenant, "agent": ask.scope.agent}
        if ask.scope.is_named:
            find, owner = scopes.FIND, {**owner, "user": ask.scope.user or ""}
        self._tell_shared(row, foreseen)
        foreseen.put(find, owner, [(scope,)] if scope is not None else [])
        if scope is None:
            return
        of = {"scope": scope}
        answers, exact_nodes, attempt, open_nodes = (list(_rows(t.nodes, x)) for x in row[5:9])
        foreseen.put(turn_reader.EDITS, of, [(row[1], row[2])])
        foreseen.put(SHELF, {**of, "branch": 0}, list(_rows(t.blocks, row[4])))
        if self.digests:
            size, values = batch_values(of, self.digests)
            foreseen.put(turn_reader.select_by_digest(size), values, answers)
        if self.exact_place:
            digest, chain = self.exact_place
            place = of | {"digest": digest, "chain": chain}
            foreseen.put(turn_reader.BY_CHAIN, place, exact_nodes)
        foreseen.put(turn_reader.ATTEMPT, {**of, "request": ask.request}, attempt[:1])
        foreseen.put(turn_reader.WAITING, {**of, "asked": ask.turn.chain.end}, open_nodes)
        foreseen.put(openings.NEWEST, of, list(_rows(t.conversations, row[13])))
        _tell_living((*attempt, *open_nodes), row[12] or (), foreseen)
        lines = list(_rows(t.conversations, row[9]))
        if ask.explicit:
            named_lines = [line for line in lines if line.name == ask.explicit]
            foreseen.put(turn_reader.BY_NAME, {**of, "which": ask.explicit}, named_lines)
        for line in lines:
            foreseen.put(turn_reader.BY_KEY, {**of, "which": line.id}, [line])
        for epoch in _rows(t.epochs, row[10]):
            foreseen.put(turn_reader.EPOCH, {**of, "epoch": epoch.id}, [epoch])
        carriers = {carrier.id: carrier for carrier in _rows(t.nodes, row[11])}
        for node in (*answers, *exact_nodes):
            keys = decode(node.carriers) if node.carriers else []
            if all(key in carriers for key in keys):
                rows = [carriers[key] for key in sorted(set(keys))]
                statement = turn_reader.select_carriers(sql_driver(conn))
                foreseen.put(statement, {**of, **key_list(conn, keys)}, rows)


def _tell_living(nodes: Sequence[Any], living: Sequence[int], foreseen: ForeseenRows) -> None:
    from memory.stores.sql.engine.postgres.postgres_driver import LIVING_WORKER

    for holder in {node.holder for node in nodes} - {None}:
        rows = [(holder,)] if holder in living else []
        foreseen.put(LIVING_WORKER, {"holder": holder}, rows)


def _spoken(turn: RequestHistory) -> Iterator[int]:
    """Yield the answers that say something, newest first."""
    silent = turn.silent
    return (i for i in turn.answers() if turn.chain.digest(i) != silent)


def _rows(table: Table, json_rows: str | None) -> Iterator[Any]:
    """Yield rows of a table that were read as JSON, in which bytes are hexadecimal."""
    if json_rows is None:
        return
    for row in decode(json_rows):
        for name in _binary_columns(table):
            if (value := row[name]) is not None:
                row[name] = bytes.fromhex(value[2:])
        yield SimpleNamespace(**row)


@cache
def _binary_columns(table: Table) -> list[str]:
    return [c.name for c in table.c if isinstance(c.type, LargeBinary)]
