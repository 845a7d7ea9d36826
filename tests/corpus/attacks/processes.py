# ruff: noqa: E501 (programs, one to a line)
"""Starting, reaching and outliving processes."""

DONE = {"inputs": [""], "outputs": ["done"]}

ATTACKS = [
    ("kill the sentinel", "import os\nos.kill(SENTINEL-PID, 9)\nprint('done')", DONE),
    ("kill the trainer", "import os\nos.kill(TRAINER-PID, 9)\nprint('done')", DONE),
    ("kill by thread", "import ctypes, os\nprint('done' if ctypes.CDLL(None).syscall(200, os.getppid(), 9) == 0 else '')", DONE),
    ("kill by descriptor", "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)\nprint('done')", DONE),
    ("signal by file owner", "import fcntl, os, socket\na, b = socket.socketpair(); fcntl.fcntl(a, fcntl.F_SETOWN, SENTINEL-PID); fcntl.fcntl(a, 10, 9)\nfcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC); b.send(b'x')\nprint('done')", DONE),
    ("fork", "import os\nif os.fork() == 0:\n    os._exit(0)\nprint('done')", DONE),
    ("clone3", "import ctypes\nb = (ctypes.c_uint64 * 11)(); b[4] = 17\nif ctypes.CDLL(None).syscall(435, b, 88) >= 0: print('done')", DONE),
    ("vfork", "import ctypes\nif ctypes.CDLL(None).syscall(58) >= 0: print('done')", DONE),
    ("subprocess", "import subprocess\nprint(subprocess.run(['echo', 'done'], capture_output=True, text=True).stdout)", DONE),
    ("exec", "import os\nos.execv('/bin/echo', ['echo', 'done'])", DONE),
    ("spawn", "import os\nos.posix_spawn('/bin/echo', ['echo', 'done'], {})", DONE),
    ("daemon", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nprint('done')", DONE),
    ("trace the parent", "import ctypes, os\nprint('done' if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0 else '')", DONE),
    ("read another's memory", "import ctypes, os\nprint('done' if ctypes.CDLL(None).syscall(310, os.getppid(), 0, 0, 0, 0, 0) >= 0 else '')", DONE),
    ("write the parent's memory", "import os\nopen(f'/proc/{os.getppid()}/mem', 'r+b')\nprint('done')", DONE),
    ("become root", "import os\nos.setuid(0)\nprint('done')", DONE),
    ("new namespace", "import ctypes\nprint('done' if ctypes.CDLL(None).unshare(0x10000000) == 0 else '')", DONE),
    ("load a program into the kernel", "import ctypes\nprint('done' if ctypes.CDLL(None).syscall(321, 0, 0, 0) >= 0 else '')", DONE),
    ("survive the parent", "import ctypes\nprint('done' if ctypes.CDLL(None).prctl(1, 0, 0, 0, 0) == 0 else '')", DONE),
    ("be dumpable", "import ctypes\nprint('done' if ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0 else '')", DONE),
    ("lower others' priority", "import os\nos.setpriority(os.PRIO_PROCESS, 0, -5)\nprint('done')", DONE),
    ("shared memory", "import ctypes\nprint('done' if ctypes.CDLL(None).shmget(0, 4096, 0o1666) >= 0 else '')", DONE),
    ("message queue", "import ctypes\nprint('done' if ctypes.CDLL(None).msgget(1234, 0o1666) >= 0 else '')", DONE),
    ("close the harness's descriptors", "import os\nos.closerange(0, 256)", {"inputs": ["", ""], "outputs": ["x", "x"]}),
    ("write to the harness's descriptors", "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'{\"end\": 4, \"status\": 0}\\n' * 20)\n    except OSError: pass", {"inputs": ["", "", ""], "outputs": ["x", "x", "x"]}),
]  # fmt: skip

LASTING = [
    ("ignore signals and stay", "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass", DONE),
]  # fmt: skip
