"""The MCP door: memory for programs that speak the Model Context Protocol, over HTTP and stdio.

`protocol` is pure: bytes in, a request or an error out, for both eras of the protocol. The tools
run through the memory's own functions. May import what is below the rooms that answer HTTP, and
`gateway.chat` for agents and modes; `gateway.server` alone imports it, at its first request.
"""
