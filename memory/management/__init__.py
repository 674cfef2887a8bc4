"""Changes to a memory from outside a conversation: by the API, the CLI, an import.

Each function is one transaction on a `Memory`, or several short ones, and hides SQL. A change marks
the scope, so that no frozen core text with the old state is sent again, and queues what must follow
in the indexes beside the database. May import everything of `memory`; nothing of `memory` imports
it.
"""

from memory.management import (
    activity,
    agent_turns,
    agents,
    blocks,
    conversations,
    dropped,
    exchanges,
    files,
    jobs,
    layers,
    passages,
    policies,
    python_tools,
    reflections,
    shared_blocks,
    shared_undo,
    shown_memory,
    skills,
    tool_calls,
    users,
)

__all__ = [
    "activity",
    "agent_turns",
    "agents",
    "blocks",
    "conversations",
    "dropped",
    "exchanges",
    "files",
    "jobs",
    "layers",
    "passages",
    "policies",
    "python_tools",
    "reflections",
    "shared_blocks",
    "shared_undo",
    "shown_memory",
    "skills",
    "tool_calls",
    "users",
]
