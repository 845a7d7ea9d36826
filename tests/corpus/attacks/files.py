# ruff: noqa: E501 (programs, one to a line)
"""Reading the host's files, writing anywhere, leaving something for the next program."""

SECRET = {"inputs": [""], "outputs": ["SECRET-CONTENT"]}
ENVIRONMENT = {"inputs": [""], "outputs": ["SECRET-ENVIRONMENT"]}
DONE = {"inputs": [""], "outputs": ["done"]}

ATTACKS = [
    ("read a secret", "print(open('SECRET-PATH').read())", SECRET),
    ("read it through a link", "import os\nos.symlink('SECRET-PATH', '/tmp/l')\nprint(open('/tmp/l').read())", SECRET),
    ("read it through a hard link", "import os\nos.link('SECRET-PATH', '/tmp/l')\nprint(open('/tmp/l').read())", SECRET),
    ("read it from above", "import os\nfor d in range(3, 20):\n    try:\n        f = os.open('../' * 12 + 'SECRET-PATH'.lstrip('/'), 0, dir_fd=d)\n        print(os.read(f, 99).decode()); break\n    except OSError: pass", SECRET),
    ("read it through root", "import os\nfor p in ('/proc/1/root', '/proc/self/root', '/proc/self/cwd'):\n    try: print(open(p + 'SECRET-PATH').read()); break\n    except OSError: pass", SECRET),
    ("read the trainer's descriptors", "import os\nfor fd in range(64):\n    for pid in ('TRAINER-PID', '1', 'self'):\n        try: print(open(f'/proc/{pid}/fd/{fd}').read())\n        except Exception: pass", SECRET),
    ("read the environment", "import os\nprint(os.environ.get('DELTA_TRL_CANARY', ''))", ENVIRONMENT),
    ("read the environment of libc", "import ctypes\ng = ctypes.CDLL(None).getenv; g.restype = ctypes.c_char_p\nprint((g(b'DELTA_TRL_CANARY') or b'').decode())", ENVIRONMENT),
    ("read the trainer's environment", "for p in ('self', '1', 'TRAINER-PID'):\n    try: print(open(f'/proc/{p}/environ').read().split('DELTA_TRL_CANARY=')[1].split('\\0')[0])\n    except Exception: pass", ENVIRONMENT),
    ("list the trainer's directory", "import os\nos.listdir('SECRET-DIRECTORY')\nprint('done')", DONE),
    ("read the command line", "print('done' if open('/proc/TRAINER-PID/cmdline').read() else '')", DONE),
    ("write beside the secret", "open('SECRET-DIRECTORY/mark', 'w').write('x')\nprint('done')", DONE),
    ("overwrite the secret", "open('SECRET-PATH', 'w').write('x')\nprint('done')", DONE),
    ("truncate the secret", "import os\nos.truncate('SECRET-PATH', 0)\nprint('done')", DONE),
    ("truncate by opening", "import os\nos.open('SECRET-PATH', os.O_RDONLY | os.O_TRUNC)\nprint('done')", DONE),
    ("delete the secret", "import os\nos.unlink('SECRET-PATH')\nprint('done')", DONE),
    ("rename the secret", "import os\nos.rename('SECRET-PATH', 'SECRET-PATH' + 'x')\nprint('done')", DONE),
    ("change its mode", "import os\nos.chmod('SECRET-PATH', 0o777)\nprint('done')", DONE),
    ("write into the library", "import json\nopen(json.__file__, 'a').write('#')\nprint('done')", DONE),
    ("write to memory", "open('/dev/shm/mark', 'w').write('x')\nprint('done')", DONE),
    ("write to /", "open('/mark', 'w').write('x')\nprint('done')", DONE),
    ("persist in /tmp", "import os\nprint('done' if os.path.exists('/tmp/mark') else '')\nopen('/tmp/mark', 'w').write('x')", {"inputs": ["", ""], "outputs": ["", "done"]}),
    ("persist in an unreadable directory", "import os\nif os.path.exists('/tmp/d'): print('done')\nelse: os.mkdir('/tmp/d', 0); open('/tmp/mark', 'w')", {"inputs": ["", ""], "outputs": ["", "done"]}),
    ("chroot", "import os\nos.chroot('/tmp')\nprint('done')", DONE),
    ("mount", "import ctypes\nprint('done' if ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0 else '')", DONE),
    ("open by handle", "import ctypes\nprint('done' if ctypes.CDLL(None).syscall(304, 0, 0, 0) == 0 else '')", DONE),
    ("import the trainer's package", "import delta_trl.sandbox.sandbox\nprint('done')", DONE),
]  # fmt: skip
