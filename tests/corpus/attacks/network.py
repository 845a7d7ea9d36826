# ruff: noqa: E501 (programs, one to a line)
"""Reaching anything outside. The listeners are real; a connection is noticed on the host."""

DONE = {"inputs": [""], "outputs": ["done"]}

ATTACKS = [
    ("connect", "import socket\nsocket.create_connection(('127.0.0.1', TCP-PORT), 1)\nprint('done')", DONE),
    ("connect from ctypes", "import ctypes\nprint('done' if ctypes.CDLL(None).socket(2, 1, 0) >= 0 else '')", DONE),
    ("datagram", "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', UDP-PORT))\nprint('done')", DONE),
    ("listen", "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\nprint('done')", DONE),
    ("netlink", "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\nprint('done')", DONE),
    ("unix socket", "import socket\ns = socket.socket(socket.AF_UNIX); s.connect('UNIX-PATH')\nprint('done')", DONE),
    ("abstract socket", "import socket\ns = socket.socket(socket.AF_UNIX); s.connect('\\0ABSTRACT-NAME')\nprint('done')", DONE),
    ("redirect a pair", "import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', '\\0ABSTRACT-DATAGRAM')\nprint('done')", DONE),
    ("redirect a stream pair", "import socket\na, b = socket.socketpair(); a.sendto(b'x', '\\0ABSTRACT-DATAGRAM')\nprint('done')", DONE),
    ("names", "import socket\nsocket.getaddrinfo('localhost', 80)\nsocket.gethostbyname('example.com')\nprint('done')", DONE),
    ("http", "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:TCP-PORT', timeout=1)\nprint('done')", DONE),
    ("ring", "import ctypes\nprint('done' if ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(256)) >= 0 else '')", DONE),
]  # fmt: skip
