"""The door for Letta clients: their objects in, their objects out, on our agents and memories.

A thin translation. Agents are profiles of home `agent`, a message is a turn of `gateway.chat`, and
blocks, passages and histories are those of `memory`. May import whatever stands below the server.
"""
