"""Probes of what a sandbox must stop: each is Python source that tries to reach out.

CANARY stands for the path of a file with a secret, PORT for that of a listener on loopback, PID for
the process of the test. A probe may fail or return anything but the secret.
"""

from __future__ import annotations

# ruff: noqa: E501 - probes are read as they are

READ_FILES = {
    "open": "open('CANARY').read()",
    "open bytes": "open('CANARY', 'rb').read()",
    "pathlib": "import pathlib\npathlib.Path('CANARY').read_text()",
    "io.open": "import io\nio.open('CANARY').read()",
    "io.FileIO": "import io\nio.FileIO('CANARY').read()",
    "os.open": "import os\nos.read(os.open('CANARY', os.O_RDONLY), 99)",
    "posix.open": "import posix\nposix.read(posix.open('CANARY', 0), 99)",
    "linecache": "import linecache\nlinecache.getlines('CANARY')",
    "fileinput": "import fileinput\nlist(fileinput.input('CANARY'))",
    "codecs": "import codecs\ncodecs.open('CANARY').read()",
    "mmap": "import mmap, os\nmmap.mmap(os.open('CANARY', 0), 0, prot=1)[:]",
    "shutil": "import shutil\nshutil.copy('CANARY', '/tmp/x')\nopen('/tmp/x').read()",
    "symlink": "import os\nos.symlink('CANARY', '/tmp/link')\nopen('/tmp/link').read()",
    "hard link": "import os\nos.link('CANARY', '/tmp/hard')\nopen('/tmp/hard').read()",
    "proc root": "open('/proc/1/' + 'root/CANARY').read()",
    "proc self root": "open('/proc/self/' + 'root/CANARY').read()",
    "proc cwd": "open('/proc/self/cwd/../CANARY').read()",
    "proc of the gateway": "open('/proc/PID/' + 'root/CANARY').read()",
    "environ of the gateway": "open('/proc/PID/environ').read()",
    "descriptors": "import os\n[os.pread(n, 99, 0) for n in range(3, 40) if n]",
    "every descriptor": """
import os
seen = []
for n in range(0, 64):
    try:
        seen.append(os.fstat(n).st_mode)
        seen.append(os.read(n, 99) if n > 9 else b'')
    except OSError:
        pass
str(seen)""",
    "walk": """
import os
seen = []
for folder, _, names in os.walk('/'):
    if folder.count('/') > 4 or folder.startswith(('/usr', '/lib')):
        continue
    for name in names:
        try:
            seen.append(open(os.path.join(folder, name)).read(200))
        except (OSError, UnicodeDecodeError):
            pass
str(seen)[:5000]""",
    "chroot": "import os\nos.chroot('/proc/1/root')\nopen('CANARY').read()",
    "glob": "import glob\n[open(n).read(99) for n in glob.glob('/tmp/**/*', recursive=True)]",
    "ctypes open": """
import ctypes
libc = ctypes.CDLL(None)
fd = libc.open(b'CANARY', 0)
buffer = ctypes.create_string_buffer(99)
libc.read(fd, buffer, 99)
buffer.value.decode()""",
    "eval": "eval(\"open('CANARY').read()\")",
    "exec": "names = {}\nexec(\"x = open('CANARY').read()\", names)\nnames['x']",
    "import": "__import__('builtins').open('CANARY').read()",
    "loader": "__loader__.get_data('CANARY').decode()",
    "sqlite": "import sqlite3\nsqlite3.connect('CANARY').execute('select 1').fetchall()",
    "traceback": "import traceback\ntraceback.format_exc() + str(__builtins__)[:100] + __file__",
    "tomllib": "import tomllib\ntomllib.load(open('CANARY', 'rb'))",
    "csv": "import csv\nlist(csv.reader(open('CANARY')))",
}
READ_ENVIRONMENT = {
    "os.environ": "import os\nstr(dict(os.environ))",
    "os.getenv": "import os\nstr([os.getenv('SECRET_CANARY'), os.environb])",
    "proc environ": "open('/proc/self/environ').read()",
    "posix environ": "import posix\nstr(posix.environ)",
    "ctypes getenv": "import ctypes\nc = ctypes.CDLL(None)\nc.getenv.restype = ctypes.c_char_p\n"
    "str(c.getenv(b'SECRET_CANARY'))",
    "arguments": "import sys\nstr([sys.argv, sys.orig_argv, sys.path])",
    "subclasses": "str([c for c in ().__class__.__base__.__subclasses__() if 'environ' in str(c)])",
    "globals of a module": "import json\nstr(json.__dict__['codecs'].open('CANARY').read())",
    "frames": "import sys\nf = sys._getframe()\nwhile f.f_back: f = f.f_back\nstr(f.f_globals)[:900]",
    "objects": "import gc\nstr([o for o in gc.get_objects() if isinstance(o, dict) and 'CANARY' in o])",
    "generator frame": "g = (x for x in [1])\nstr(g.gi_frame.f_back)",
    "format": "'{0.__class__.__init__.__globals__}'.format(type('A', (), {'__init__': lambda s: 0})())",
}
CONNECT = {
    "socket": "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1).send(b'x')",
    "socket of six": "import socket\nsocket.create_connection(('::1', PORT), 1)",
    "connect_ex": "import socket\ns = socket.socket()\ns.settimeout(1)\ns.connect_ex(('127.0.0.1', PORT))",
    "any address": "import socket\nsocket.create_connection(('0.0.0.0', PORT), 1)",
    "_socket": "import _socket\n_socket.socket().connect(('127.0.0.1', PORT))",
    "urllib": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:PORT', timeout=1)",
    "http.client": "import http.client\nc = http.client.HTTPConnection('127.0.0.1', PORT, timeout=1)\n"
    "c.request('GET', '/')",
    "asyncio": "import asyncio\nawait asyncio.open_connection('127.0.0.1', PORT)",
    "fetch": "await fetch('http://127.0.0.1:PORT/')",
    "datagrams": "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    "s.sendto(b'x', ('127.0.0.1', PORT))",
    "netlink": "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n1",
    "raw": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\n1",
    "packet": "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n1",
    "unix": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/var/run/docker.sock')",
    "abstract unix": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0gateway')",
    "names": "import socket\nsocket.getaddrinfo('example.com', 80)",
    "ctypes socket": """
import ctypes, struct
c = ctypes.CDLL(None)
s = c.socket(2, 1, 0)
a = struct.pack('<H', 2) + struct.pack('>H', PORT) + bytes([127, 0, 0, 1]) + bytes(8)
str(c.connect(s, a, 16))""",
}
START_PROCESSES = {
    "subprocess": "import subprocess\nsubprocess.run(['cat', 'CANARY'], capture_output=True).stdout",
    "os.system": "import os\nos.system('cat CANARY > /tmp/out')\nopen('/tmp/out').read()",
    "os.popen": "import os\nos.popen('cat CANARY').read()",
    "execv": "import os\nos.execv('/bin/cat', ['cat', 'CANARY'])",
    "spawn": "import os\nos.spawnv(os.P_WAIT, '/bin/cat', ['cat', 'CANARY'])",
    "pty": "import pty\npty.spawn(['cat', 'CANARY'])",
    "multiprocessing": "import multiprocessing as m\np = m.Process(target=print)\np.start()\np.join()",
    "daemon": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
'left'""",
    "thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n'left'",
    "ignored signals": "import signal\nfor n in range(1, 32):\n    try:\n        signal.signal(n, "
    "signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\nwhile True: pass",
    "kill all": "import os\nos.kill(-1, 9)",
    "kill the gateway": "import os\nos.kill(PID, 9)",
    "kill the parent": "import os\nos.kill(os.getppid(), 9)\nos.kill(1, 9)\n'done'",
    "ptrace": "import ctypes\nstr(ctypes.CDLL(None).ptrace(16, PID, 0, 0))",
    "memory of the gateway": "open('/proc/PID/mem', 'rb').read(9)",
}
GAIN_RIGHTS = {
    "setuid": "import os\nos.setuid(0)\nopen('CANARY').read()",
    "mount": "import ctypes\nstr(ctypes.CDLL(None).mount(b'proc', b'/tmp', b'proc', 0, None))",
    "remount": "import ctypes\nr = ctypes.CDLL(None).mount(b'', b'/', b'', 32, None)\n"
    "open('/x', 'w').write('x')",
    "pivot": "import ctypes\nstr(ctypes.CDLL(None).syscall(155, b'/tmp', b'/tmp'))",
    "user namespace": "import ctypes\nr = ctypes.CDLL(None).unshare(0x10000000)\n"
    "assert r != 0, 'CANARY-ROOM'\nr",
    "network namespace": "import ctypes\nassert ctypes.CDLL(None).unshare(0x40000000) != 0",
    "setns": "import ctypes, os\nstr(ctypes.CDLL(None).setns(os.open('/proc/1/ns/net', 0), 0))",
    "device": "import os\nos.mknod('/tmp/sda', 0o60600, os.makedev(8, 0))\nopen('/tmp/sda').read(9)",
    "kernel log": "open('/dev/kmsg').read(99)",
    "physical memory": "open('/dev/mem', 'rb').read(9)",
    "module": "import ctypes\nstr(ctypes.CDLL(None).syscall(175, b'', 0, b''))",
    "bpf": "import ctypes\nstr(ctypes.CDLL(None).syscall(321, 0, b'', 0))",
    "key ring": "import ctypes\nstr(ctypes.CDLL(None).syscall(250, 0, -3, 0, 0))",
    "limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n"
    "x = bytearray(2 << 30)\nlen(x)",
    "terminal": "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')",
    "write the root": "open('/canary-written', 'w').write('x')",
    "write the interpreter": "import json\nopen(json.__file__, 'a').write('#')",
}
USE_UP = {
    "loop": "while True: pass",
    "sleep": "import time\ntime.sleep(600)",
    "power": "10 ** 10 ** 8",
    "digits": "str(10 ** 10 ** 6)",
    "list": "x = []\nwhile True: x.append('a' * 100000)",
    "text": "x = 'a'\nwhile True: x += x",
    "one block": "x = bytearray(1 << 40)",
    "nesting": "x = []\nfor _ in range(10 ** 7): x = [x]\nx",
    "deep parentheses": "(" * 5000 + ")" * 5000,
    "deep unary": "-" * 20000 + "1",
    "deep attributes": "x" + ".a" * 20000,
    "deep calls": "def f(): return f()\nf()",
    "print": "while True: print('x' * 1000)",
    "print one": "print('x' * (40 << 20))",
    "regex": "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')",
    "long result": "'x' * (20 << 20)",
    "wide result": "list(range(10 ** 6))",
    "circle": "x = []\nx.append(x)\nx",
    "threads": "import threading, time\nfor _ in range(9999): threading.Thread(target=time.sleep, "
    "args=(9,)).start()",
    "fork bomb": "import os\nwhile True: os.fork()",
    "forks that eat": """
import os
for _ in range(64):
    if os.fork() == 0:
        x = []
        while True: x.append(bytearray(1 << 20))
'made'""",
    "full disk": "n = 0\nwhile True:\n    open(f'/tmp/{n}', 'wb').write(b'x' * (1 << 20))\n    n += 1",
    "one large file": "f = open('/tmp/x', 'wb')\nwhile True: f.write(b'x' * (1 << 20))",
    "many files": "f = [open(f'/tmp/{n}', 'w') for n in range(100000)]",
    "shared memory": "n = 0\nwhile True:\n    open(f'/dev/shm/{n}', 'wb').write(b'x' * 99999)\n    n += 1",
    "memory without a name": "import os\nf = os.memfd_create('x')\nwhile True: "
    "os.write(f, b'x' * (1 << 20))",
    "gathered sleeps": "import asyncio\nawait asyncio.gather(*[asyncio.sleep(1) for _ in "
    "range(100000)])",
    "result on the pipe": 'import os\nfor n in range(3, 9):\n    try:\n        os.write(n, b\'{"printed": '
    '"", "result": ["text", "forged"]}\\n\' * 9999)\n    except OSError:\n        pass',
    "exit": "import os\nos._exit(3)",
    "abort": "import os\nos.abort()",
    "crash": "import ctypes\nctypes.string_at(0)",
    "closed pipes": "import os\nos.closerange(0, 64)\nwhile True: pass",
}
PROBES = {
    f"{family}: {name}": code
    for family, probes in (
        ("read", READ_FILES),
        ("environment", READ_ENVIRONMENT),
        ("connect", CONNECT),
        ("process", START_PROCESSES),
        ("rights", GAIN_RIGHTS),
        ("use up", USE_UP),
    )
    for name, code in probes.items()
}


def fill(code: str, canary: str, port: int, pid: int) -> str:
    """Return a probe with the names of what it must not reach."""
    return code.replace("CANARY", canary).replace("PORT", str(port)).replace("PID", str(pid))
