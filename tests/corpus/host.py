"""Things on the host that programs must not reach."""

import os
import socket
import subprocess


CANARY = "SECRET-ENVIRONMENT"


class Host:
    """Things on the host that attacks go for, and whether they are still as they were."""

    def __init__(self, directory):
        self.directory = directory
        directory.chmod(0o777)
        self.secret = directory / "secret"
        self.secret.write_text("SECRET-CONTENT")
        self.secret.chmod(0o666)
        self.sentinel = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # ends when this process does, not before
        name = f"delta_trl-{os.getpid()}"
        self.sockets = []
        for family, kind, address in (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(directory / "socket")),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{name}"),
            (socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{name}-datagram"),
        ):
            one = socket.socket(family, kind)
            one.bind(address)
            if kind == socket.SOCK_STREAM:
                one.listen()
            one.setblocking(False)
            self.sockets.append(one)
        tcp, udp, *_ = self.sockets
        self.words = {
            "SECRET-PATH": str(self.secret),
            "SECRET-DIRECTORY": str(directory),
            "TRAINER-PID": str(os.getpid()),
            "SENTINEL-PID": str(self.sentinel.pid),
            "TCP-PORT": str(tcp.getsockname()[1]),
            "UDP-PORT": str(udp.getsockname()[1]),
            "UNIX-PATH": str(directory / "socket"),
            "ABSTRACT-DATAGRAM": f"{name}-datagram",
            "ABSTRACT-NAME": name,
        }
        self.before = self.state()

    def state(self) -> dict:
        return {
            "secret": (self.secret.read_text(), self.secret.stat().st_mode),
            "directory": sorted(os.listdir(self.directory)),
            "marks": [path for path in ("/mark", "/tmp/mark", "/tmp/d", "/dev/shm/mark") if os.path.exists(path)],
            "sentinel": self.sentinel.poll(),
            "environment": os.environ.get("DELTA_TRL_CANARY"),
            "connections": [self.contacted(one) for one in self.sockets],
        }

    @staticmethod
    def contacted(one: socket.socket) -> bool:
        try:
            one.recv(1) if one.type == socket.SOCK_DGRAM else one.accept()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self.sentinel.kill()
        self.sentinel.communicate()
        for one in self.sockets:
            one.close()

    def fill_in(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace(word, value)
        return text
