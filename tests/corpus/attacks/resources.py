# ruff: noqa: E501 (programs, one to a line)
"""Using up memory, processors, disk, descriptors, threads and time."""

X = {"inputs": [""], "outputs": ["x"]}

ATTACKS = [
    ("memory", "x = []\nwhile True: x.append(bytearray(1 << 24))", X),
    ("memory at once", "x = bytearray(1 << 36)", X),
    ("memory mapped", "import mmap\nx = []\nwhile True:\n    x.append(mmap.mmap(-1, 1 << 26))\n    x[-1].write(b'x' * (1 << 26))", X),
    ("memory in a file", "import os\nf = os.memfd_create('x')\nwhile True: os.write(f, b'x' * (1 << 20))", X),
    ("memory in pipes", "import os\nx = []\nwhile True:\n    r, w = os.pipe(); os.set_blocking(w, False); x.append(os.write(w, b'x' * 65536))", X),
    ("disk", "f = open('/tmp/x', 'wb')\nwhile True: f.write(b'x' * (1 << 20))", X),
    ("many files on disk", "i = 0\nwhile True:\n    with open(f'/tmp/{i}', 'wb') as f: f.write(b'x' * 10**6)\n    i += 1", X),
    ("inodes", "i = 0\nwhile True:\n    open(f'/tmp/{i}', 'w').close(); i += 1", X),
    ("deep directories", "import os\nwhile True:\n    os.mkdir('d'); os.chdir('d')", X),
    ("descriptors", "x = []\nwhile True: x.append(open('/dev/null'))", X),
    ("output flood", "while True: print('x' * 100000)", X),
    ("error flood", "import sys\nwhile True: sys.stderr.write('x' * 100000)", X),
    ("core dump", "import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (-1, -1))\nos.abort()", X),
    ("raise the limits", "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nprint('x')", X),
    ("a value nested too deeply", "def f():\n    x = []\n    for _ in range(10**5): x = [x]\n    return x", {"fn_name": "f", "inputs": [[]], "outputs": [[]]}),
    ("a value that contains itself", "def f():\n    x = []\n    x.append(x)\n    return x", {"fn_name": "f", "inputs": [[]], "outputs": [[]]}),
    ("an integer with many digits", "def f(): return 1 << (8 * 4_000_000)", {"fn_name": "f", "inputs": [[]], "outputs": [1]}),
    ("a flood of short reports", "import os\ndef f():\n    os.write(3, b'[]\\n' * (1 << 21)); os._exit(0)", {"fn_name": "f", "inputs": [[], []], "outputs": [[1], [2]]}),
    ("a flood of lines", "print('x' + '\\n' * (8_000_000) + 'x')", {"inputs": ["", ""], "outputs": ["1.5", "1.5"]}),
]  # fmt: skip

LASTING = [
    ("endless loop", "while True: pass", X),
    ("sleep", "import time\ntime.sleep(1000)", X),
    ("long in C without the lock", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')", X),
    ("catches everything", "while True:\n    try:\n        while True: pass\n    except BaseException: pass", X),
    ("memory in threads", "import threading, time\ndef f():\n    x = bytearray(1 << 24); time.sleep(100)\nwhile True: threading.Thread(target=f).start()", X),
    ("thread bomb", "import threading, time\nthreading.stack_size(32768)\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(1000,)).start()\n    except RuntimeError: pass", X),
    ("fork bomb", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", X),
    ("output flood by system call", "import os\nwhile True:\n    try: os.write(1, b'x' * 100000)\n    except OSError: pass", X),
    ("report flood", "import os\nwhile True:\n    try: os.write(3, b'[' * 100000)\n    except OSError: pass", X),
    ("recursion", "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", X),
    ("recursion in C", "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)", X),
    ("stop", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", X),
    ("a value that is too long", "def f(): return ['x' * 1000] * 10**6", {"fn_name": "f", "inputs": [[]], "outputs": ["x"]}),
    ("loop in a tested function", "def f():\n    while True: pass", {"test": "assert f() == 1"}),
    ("endless generator", "def f():\n    while True: yield 1", {"test": "assert list(f()) == [1]"}),
]  # fmt: skip
