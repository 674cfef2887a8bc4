"""No text repeats a secret of the configuration, wherever it stands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.config.mcp_tools import McpToolSettings
from gateway.config.tool_entry import ToolSettings
from gateway.tools.hidden_values import HiddenValues, hidden_values_of

SECRETS = st.text("abcXYZ019-_.", min_size=6, max_size=20)
TEXTS = st.text("abc XYZ{}:\n", max_size=30)


@given(TEXTS, SECRETS, TEXTS)
def test_a_value_and_what_stands_behind_its_scheme_are_taken_out(before, secret, after):
    hidden = HiddenValues([f"Bearer {secret}", "short"])
    for echoed in (secret, f"Bearer {secret}", f"{secret}{secret}"):
        assert secret not in hidden.hide(f"{before}{echoed}{after}")
    assert hidden.hide("a short text") == "a short text"


def test_headers_and_variables_with_secrets_are_hidden_and_others_are_not():
    env = {"API_KEY": "key-123456", "HOME": "/home/ada", "DB_PASSWORD": "open-sesame"}
    hidden = hidden_values_of(McpToolSettings(command="x", env=env), ["of-the-client"])
    told = "key-123456 /home/ada open-sesame of-the-client"
    assert hidden.hide(told) == "[secret] /home/ada [secret] [secret]"
    assert hidden_values_of(ToolSettings(kind="files")).hide(told) == told
