"""Records of models: counted in this process, written in batches, read at the start."""

from __future__ import annotations

from memory.core.autonomy import ModelRecord
from memory.jobs.maintenance import RetentionPolicy, expire_handler
from memory.session.model_records import MAX_NAME_CHARACTERS, ModelRecords
from memory.stores.sql import model_records


async def test_what_is_saved_is_known_after_a_restart(db):
    records = ModelRecords()
    for called in (True, False, False):
        records.count("p/m", called=called)
    saved = records.take_unsaved()
    assert saved == {"p/m": ModelRecord(3, 1, 2)}
    await db.write(lambda conn: model_records.save(conn, saved))
    after = ModelRecords()
    after.load(await db.read(model_records.load))
    assert after.of("p/m") == ModelRecord(3, 1, 2)
    assert after.of("p/other") == ModelRecord()


def test_records_are_written_in_batches():
    records = ModelRecords()
    records.count("m", called=False)
    assert records.take_unsaved() == {"m": ModelRecord(1, 0, 1)}
    records.count("m", called=True)
    assert records.take_unsaved() == {}
    records._saved_at = float("-inf")
    assert records.take_unsaved() == {"m": ModelRecord(2, 1, 0)}


def test_a_very_long_name_is_bounded():
    records = ModelRecords()
    records.count("m" * 100_000, called=False)
    assert [len(name) for name in records.take_unsaved()] == [MAX_NAME_CHARACTERS]


async def test_names_that_clients_invent_leave_a_bounded_number_of_rows(db, monkeypatch):
    monkeypatch.setattr(model_records, "MAX_MODELS", 5)
    monkeypatch.setattr(model_records, "BATCH", 4)
    for i in range(20):
        await db.write(
            lambda conn, i=i: model_records.save(conn, {f"m{i:02}": ModelRecord(1, 0, 1)})
        )
    policy = RetentionPolicy(explain=1, unnamed=1)
    await expire_handler(db, policy)(None)
    monkeypatch.setattr(model_records, "MAX_MODELS", 100)
    kept = await db.read(model_records.load)
    assert sorted(kept) == [f"m{i:02}" for i in range(15, 20)]
