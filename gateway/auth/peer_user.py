"""Tell which user of this machine holds the other end of a loopback connection. Linux only.

A proxy adds no header that it need not add, but it cannot connect as another user. The kernel is
asked by `sock_diag(7)` for the one socket, which takes some 20 us however many are open; where it
does not serve that, `/proc/net/tcp` is searched.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path

# Host and port; the latter is unset for other sockets.
Address = tuple[str, int | None]

# Instead of a user: the other end is closed, and belongs to nobody.
GONE = -1
PROC = Path("/proc/net")
# Of one table, some 55,000 sockets; what stands behind them is not found.
PROC_BYTES = 8 << 20
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
NO_COOKIE = 0xFFFFFFFF
ANSWER_SECONDS = 0.1
ANSWER_BYTES = 8192
# Nlmsghdr: length, type, flags, sequence, port.
HEAD = struct.Struct("=IHHII")
# inet_diag_req_v2.
QUESTION = struct.Struct("=BBBxI2s2s16s16sIII")
# Of inet_diag_msg: state, user and inode.
OWNER = struct.Struct("=xB2x48x12xII")
# The state of a socket that has no other end.
LISTENING = 10


def find_peer_user(client: Address, server: Address) -> int | None:
    """Return the id of the user who opened this connection to us.

    client: the address of the other end. server: of ours. Returns GONE if the other end is closed
    already, None where this system does not tell.
    """
    family, ends = _plain(client, server)
    with contextlib.suppress(OSError):
        if (owner := _ask_kernel(family, *ends)) is not None:
            state, user, inode = owner
            if inode and state != LISTENING:
                return user
            return GONE
        # Our own end is open: if the kernel does not know that one, it does not serve the question.
        if _ask_kernel(family, *reversed(ends)) is not None:
            return GONE
    return _search_tables(*ends)


def can_find_peer_user() -> bool:
    """Tell whether this system says whose a loopback connection is, without opening one."""
    if not hasattr(os, "geteuid"):
        return False
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", 0)) as listener:
        if _ask_kernel(socket.AF_INET, listener.getsockname(), ("127.0.0.1", 1)) is not None:
            return True
    return (PROC / "tcp").exists()


def _plain(client: Address, server: Address) -> tuple[int, tuple[Address, Address]]:
    """Return both addresses in one family, IPv4 where it was mapped into IPv6."""
    ends = []
    for host, port in (client, server):
        address = ip_address(host.partition("%")[0])
        mapped_address = None
        if isinstance(address, IPv6Address):
            mapped_address = address.ipv4_mapped
        ends.append((str(mapped_address or address), port))
    if ":" in ends[0][0]:
        family = socket.AF_INET6
    else:
        family = socket.AF_INET
    return family, (ends[0], ends[1])


def _ask_kernel(
    family: int, local_address: Address, peer_address: Address
) -> tuple[int, int, int] | None:
    """Return state, user and inode of the TCP socket with these ends; None if there is none.

    The inode is 0 once nobody holds it. Raises OSError.
    """
    netlink = getattr(socket, "AF_NETLINK", None)
    if netlink is None:
        raise OSError("this system has no netlink")
    question = QUESTION.pack(
        family,
        socket.IPPROTO_TCP,
        0,
        0xFFFFFFFF,
        (local_address[1] or 0).to_bytes(2),
        (peer_address[1] or 0).to_bytes(2),
        socket.inet_pton(family, local_address[0]),
        socket.inet_pton(family, peer_address[0]),
        0,
        NO_COOKIE,
        NO_COOKIE,
    )
    head = HEAD.pack(HEAD.size + len(question), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
    with socket.socket(netlink, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(ANSWER_SECONDS)
        asking.send(head + question)
        answer = asking.recv(ANSWER_BYTES)
    if HEAD.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:
        return None
    state, user, inode = OWNER.unpack_from(answer, HEAD.size)
    return int(state), int(user), int(inode)


def _search_tables(local_address: Address, peer_address: Address) -> int | None:
    """Search the kernel's tables of TCP sockets for the one with these ends."""
    tables = 0
    for name in ("tcp", "tcp6"):
        ends = f" {_in_table(local_address, name)} {_in_table(peer_address, name)} ".encode()
        with contextlib.suppress(OSError), (PROC / name).open("rb") as table:
            tables += 1
            for line in _lines_with(table.read(PROC_BYTES), ends):
                columns = line.split()
                if columns[9] != b"0":
                    return int(columns[7])
    if tables:
        return GONE
    return None


def _lines_with(table: bytes, ends: bytes) -> Iterator[bytes]:
    at = table.find(ends)
    while at != -1:
        begin = table.rfind(b"\n", 0, at) + 1
        end = table.find(b"\n", at)
        if end != -1:
            yield table[begin:end]
        at = table.find(ends, at + 1)


def _in_table(end: Address, name: str) -> str:
    """Write an address as the kernel's table does: words in the machine's order, in hex."""
    address = ip_address(end[0])
    packed_address = address.packed
    if name == "tcp6" and address.version == 4:
        packed_address = bytes(10) + b"\xff\xff" + packed_address
    words = struct.unpack(f"={len(packed_address) // 4}I", packed_address)
    return "".join(f"{word:08X}" for word in words) + f":{end[1] or 0:04X}"
