"""Skills leave with an export, and an import makes them again."""

from __future__ import annotations

import msgspec
import pytest

from memory.export_format import BadLine, SkillLine, encode_line
from memory.management import skills as api
from memory.management.skills import SkillChange, SkillDraft
from memory.stores.sql.transfer import exporter
from memory.stores.sql.transfer.import_manifest import ImportLimits, ImportManifest
from memory.stores.sql.transfer.importer import import_into

SKILLS = {"deploy-app": ("active", "1. Build"), "pay-bill": ("candidate", "1. Look")}


async def bring(library, lines, user):
    manifest = ImportManifest(b"".join(map(encode_line, lines)), ImportLimits({}))
    await manifest.examine()
    return await import_into(library.memory.db, library.actor(user), manifest)


async def held(library, user):
    stored = await api.list_skills(library.memory, library.scope(user))
    return {s.name: (s.status, s.text) for s in stored}


async def test_an_export_brings_skills_and_an_import_makes_them_again_once(library):
    memory, ada = library.memory, library.actor("ada")
    for name, (status, text) in SKILLS.items():
        await api.add_skill(memory, ada, SkillDraft(name, "Does it.", text), status)
    await api.add_skill(memory, ada, SkillDraft("gone", "Was there.", "x"), "active")
    await api.remove_skill(memory, ada, "gone", None)
    lines = [line async for line in exporter.export(memory.db, "default", "ada")]
    assert [line.name for line in lines if isinstance(line, SkillLine)] == list(SKILLS)
    # The block that lists them is made of them, and is no line of its own.
    assert not [line for line in lines if getattr(line, "label", "") == "skills"]
    for made in (2, 0):
        receipt = await bring(library, lines, "bob")
        assert (receipt.imported.get("skills", 0), receipt.skipped) == (made, [])
    assert await held(library, "bob") == SKILLS == await held(library, "ada")
    versions = await api.list_versions(memory, library.scope("bob"), "deploy-app", None, 10)
    assert [(v["version"], v["after"]) for v in versions] == [(1, "1. Build")]
    await api.change_skill(memory, library.actor("bob"), "pay-bill", SkillChange("Other."), None)
    receipt = await bring(library, lines, "bob")
    assert [(row["object"], row["id"]) for row in receipt.skipped] == [("skill", "pay-bill")]
    assert (await held(library, "bob"))["pay-bill"] == ("candidate", "Other.")


async def test_of_one_sequence_of_calls_there_is_one_skill(library):
    line = SkillLine(name="a", description="Does it.", text="1.", steps="s1", status="strange")
    receipt = await bring(library, [line, msgspec.structs.replace(line, name="b")], "ada")
    assert (receipt.imported["skills"], len(receipt.skipped)) == (1, 1)
    assert await held(library, "ada") == {"a": ("candidate", "1.")}


@pytest.mark.parametrize("wrong", [{"name": "No Name"}, {"description": "two\nlines"}])
async def test_a_line_that_no_skill_may_be_means_that_nothing_is_stored(library, wrong):
    members = {"name": "a", "description": "Does it.", "text": "1.", **wrong}
    with pytest.raises(BadLine):
        await bring(library, [SkillLine(**members)], "ada")
