"""Office files, mails and pages made by hand, and hostile ones."""

from __future__ import annotations

import io
import zipfile

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def make_zip(members: dict[str, str | bytes], stored: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            kind = zipfile.ZIP_STORED if name == stored else zipfile.ZIP_DEFLATED
            archive.writestr(name, text, compress_type=kind)
    return out.getvalue()


def make_docx(*paragraphs: str, head: str = "") -> bytes:
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    document = (
        f'<?xml version="1.0"?>{head}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body>'
        "</w:document>"
    )
    return make_zip(
        {
            "[Content_Types].xml": (
                f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType='
                '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName='
                '"/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
                'wordprocessingml.document.main+xml"/></Types>'
            ),
            "_rels/.rels": (
                f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" Type="'
                f'{RELATIONS}/officeDocument" Target="word/document.xml"/></Relationships>'
            ),
            "word/document.xml": document,
        }
    )


def make_xlsx(*rows: tuple[str, ...]) -> bytes:
    cells = "".join(
        f'<row r="{i}">'
        + "".join(
            f'<c r="{chr(65 + j)}{i}" t="inlineStr"><is><t>{text}</t></is></c>'
            for j, text in enumerate(row)
        )
        + "</row>"
        for i, row in enumerate(rows, 1)
    )
    sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    return make_zip(
        {
            "[Content_Types].xml": (
                f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType='
                '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName='
                f'"/xl/workbook.xml" ContentType="{sheet}.sheet.main+xml"/><Override PartName='
                f'"/xl/worksheets/sheet1.xml" ContentType="{sheet}.worksheet+xml"/></Types>'
            ),
            "_rels/.rels": (
                f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" Type="'
                f'{RELATIONS}/officeDocument" Target="xl/workbook.xml"/></Relationships>'
            ),
            "xl/workbook.xml": (
                f'<workbook xmlns="{SHEET}" xmlns:r="{RELATIONS}"><sheets><sheet name="One" '
                'sheetId="1" r:id="r1"/></sheets></workbook>'
            ),
            "xl/_rels/workbook.xml.rels": (
                f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" Type="'
                f'{RELATIONS}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>'
            ),
            "xl/worksheets/sheet1.xml": (
                f'<worksheet xmlns="{SHEET}"><sheetData>{cells}</sheetData></worksheet>'
            ),
        }
    )


MAIL = (
    b"From: ada@example.org\r\nTo: bob@example.org\r\nSubject: Dinner\r\nDate: Thu, 26 Nov 2026 "
    b"08:00:00 +0000\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\nThe kumquat is ripe."
    b"\r\n"
)
PAGE = b"<!doctype html><html><body><h1>Fruit</h1><p>The kumquat is ripe.</p></body></html>"
RICH = rb"{\rtf1\ansi The kumquat is ripe.\par}"
LAUGHS = (
    "<!DOCTYPE x [<!ENTITY a '"
    + "lol" * 100
    + "'>"
    + "".join(f"<!ENTITY {chr(98 + i)} '{f'&{chr(97 + i)};' * 10}'>" for i in range(9))
    + "]>"
)
OUTSIDE = '<!DOCTYPE x [<!ENTITY leak SYSTEM "file:///etc/hostname">]>'
