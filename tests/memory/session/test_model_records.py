"""Records of models: counted in this process, written in batches, read at the start."""

from __future__ import annotations

from memory.core.autonomy import SILENT_TURNS, ModelRecord
from memory.jobs.maintenance import RetentionPolicy, expire_handler
from memory.session.model_records import (
    MAX_NAME_CHARACTERS,
    SAVES,
    SEARCHES,
    ModelRecords,
)
from memory.stores.sql.rows import model_records


async def test_what_is_saved_is_known_after_a_restart(db):
    records = ModelRecords()
    for called in (True, False, False):
        records.count("p/m", saved=called, searched=not called)
    saved = records.take_unsaved()
    assert saved == {"p/m saves": ModelRecord(3, 1, 2), "p/m searches": ModelRecord(3, 2, 0)}
    await db.write(lambda conn: model_records.save(conn, saved))
    after = ModelRecords()
    after.load(await db.read(model_records.load))
    assert after.of("p/m", SAVES) == ModelRecord(3, 1, 2)
    assert after.of("p/m", SEARCHES) == ModelRecord(3, 2, 0)
    assert after.of("p/other", SAVES) == ModelRecord()


def test_a_model_that_searches_and_never_saves_is_helped_with_saving_alone():
    records = ModelRecords()
    for _ in range(SILENT_TURNS):
        records.count("m", saved=False, searched=True)
    assert records.of("m", SAVES).is_silent
    assert not records.of("m", SEARCHES).is_silent
    for _ in range(SILENT_TURNS):
        records.count("n", saved=True, searched=False)
    assert not records.of("n", SAVES).is_silent
    assert records.of("n", SEARCHES).is_silent


def test_what_an_earlier_version_counted_stands_for_both_uses_at_first():
    records = ModelRecords()
    records.load({"m": ModelRecord(9, 0, 9)})
    assert records.of("m", SAVES).is_silent
    records.count("m", saved=True, searched=False)
    assert not records.of("m", SAVES).is_silent
    assert records.of("m", SEARCHES) == ModelRecord(10, 0, 10)


def test_records_are_written_in_batches():
    records = ModelRecords()
    records.count("m", saved=False, searched=False)
    assert set(records.take_unsaved().values()) == {ModelRecord(1, 0, 1)}
    records.count("m", saved=True, searched=True)
    assert records.take_unsaved() == {}
    records._saved_at = float("-inf")
    assert set(records.take_unsaved().values()) == {ModelRecord(2, 1, 0)}


def test_a_very_long_name_is_bounded():
    records = ModelRecords()
    records.count("m" * 100_000, saved=False, searched=False)
    assert max(len(name) for name in records.take_unsaved()) <= MAX_NAME_CHARACTERS + 10


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
