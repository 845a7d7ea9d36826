# ruff: noqa: E501 (programs, one to a line)
"""Reaching anything outside. The listeners are real; a connection is noticed on the host."""

DONE = {"inputs": [""], "outputs": ["done"]}

ATTACKS = [
    ("connect", "import socket\nsocket.create_connection(('127.0.0.1', TCP-PORT), 1)\nprint('done')", DONE),
    ("datagram", "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', UDP-PORT))\nprint('done')", DONE),
    ("netlink", "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\nprint('done')", DONE),
    ("unix socket", "import socket\ns = socket.socket(socket.AF_UNIX); s.connect('UNIX-PATH')\nprint('done')", DONE),
    ("abstract socket", "import socket\ns = socket.socket(socket.AF_UNIX); s.connect('\\0ABSTRACT-NAME')\nprint('done')", DONE),
    ("redirect a pair", "import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', '\\0ABSTRACT-DATAGRAM')\nprint('done')", DONE),
    ("redirect a stream pair", "import socket\na, b = socket.socketpair(); a.sendto(b'x', '\\0ABSTRACT-DATAGRAM')\nprint('done')", DONE),
    ("ring", "import ctypes\nprint('done' if ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(256)) >= 0 else '')", DONE),
]  # fmt: skip
