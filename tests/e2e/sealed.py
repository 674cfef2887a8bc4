"""Run in a network and mount namespace of its own: does what it is told, and prints whom anything
tried to reach.

Every address leads to the loopback device, where all packets are seen, and the resolver that is
configured is an address like any other: so whatever is looked up or connected to leaves a packet,
and nothing leaves the machine.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

RESOLVER = "192.0.2.53"
EVERY, IPV4 = 0x0003, 0x0800


def sealed(folder: Path) -> None:
    """Makes the namespace's net."""
    for command in ("ip link set lo up", "ip route add default dev lo src 127.0.0.1"):
        subprocess.run(command.split(), check=True)
    resolver = folder / "resolv.conf"
    resolver.write_text(f"nameserver {RESOLVER}\noptions timeout:1 attempts:1\n")
    subprocess.run(
        ["mount", "--bind", str(resolver), str(Path("/etc/resolv.conf").resolve())], check=True
    )


class Overheard(threading.Thread):
    """Whom packets were for, loopback left out: `address:port`, or the name that was asked of the
    resolver.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.found: set[str] = set()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(EVERY))

    def run(self) -> None:
        while True:
            data, where = self._socket.recvfrom(65536)
            if where[1] == IPV4 and data[16] != 127:
                self.found.add(told(data))


def told(packet: bytes) -> str:
    body = packet[(packet[0] & 15) * 4 :]
    address, port = socket.inet_ntoa(packet[16:20]), struct.unpack("!H", body[2:4])[0]
    if port != 53 or packet[9] != socket.IPPROTO_UDP:
        return f"{address}:{port}"
    labels, at = [], 20
    while size := body[at]:
        labels.append(body[at + 1 : at + 1 + size].decode("latin-1"))
        at += size + 1
    return ".".join(labels)


def main() -> None:
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    sealed(folder)
    overheard = Overheard()
    overheard.start()
    done = subprocess.run(command, cwd=folder / "cwd", capture_output=True, text=True)
    print(
        json.dumps(
            {
                "code": done.returncode,
                "output": done.stdout + done.stderr,
                "asked": sorted(overheard.found),
            }
        )
    )


if __name__ == "__main__":
    main()
