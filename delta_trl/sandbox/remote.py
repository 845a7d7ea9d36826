"""Runs programs on an execution server instead of this machine. The server is responsible for their isolation."""

import http.client
import inspect
import json
import urllib.request
from typing import Literal

from . import calls
from .limits import Limits, Outcome, Result
from .retries import retried


RETRY_SECONDS = 1.0
OVERHEAD_SECONDS = 30.0  # that a server may take beyond the program's own time
# The exceptions that a missing, truncated or malformed answer raises.
NO_ANSWER = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError)
# Calls a function on the server: reads {"code", "function", "inputs"}, prints its value as JSON. What the program
# prints goes to standard error. Comparing happens here; the server never sees an expected output.
CALLER = """
import os as _os
sys.set_int_max_str_digits(0)
_answers = _os.fdopen(_os.dup(1), "w")
_os.dup2(2, 1)
_job = json.load(sys.stdin)
print(call(compile_program(_job["code"]), _job["function"], _job["inputs"][0]), file=_answers, flush=True)
"""


class RemoteSandbox:
    """
    Runs programs on a server that speaks SandboxFusion's protocol (`POST /run_code`).

    It stands in for a `Sandbox` in `grade` and in `CodeReward`. Tests that are code are not supported: there they
    would run in the program's own process, which could decide their result.

    Source: https://bytedance.github.io/SandboxFusion

    Args:
        url (`str`): Address of the server, as in `http://localhost:8080`.
        limits (`Limits`, *optional*): What each execution may use; the server gets time and memory only.
        workers (`int`, *optional*, defaults to `16`): Requests at the same time.
    """

    is_local: Literal[False] = False

    def __init__(self, url: str, limits: Limits | None = None, *, workers: int = 16):
        self.url = url.rstrip("/")
        self.limits = limits or Limits()
        self.workers = workers

    def execute(self, jobs: list[dict], limits: Limits) -> Result:
        """Execute one job of one case; again if the server fails, see `retried`."""
        (job,) = jobs
        if job["kind"] == "calls":
            code = inspect.getsource(calls) + CALLER
            stdin = json.dumps(job)
        else:
            code, (stdin,) = job["code"], job["inputs"]
        request = {
            "code": code,
            "language": "python",
            "stdin": stdin,
            "run_timeout": limits.wall_seconds,
            "memory_limit_MB": limits.memory_mb,
        }
        return retried(lambda: self._post(request, limits), NO_ANSWER, RETRY_SECONDS, self.url)

    def _post(self, request: dict, limits: Limits) -> Result:
        body = json.dumps(request).encode()
        http = urllib.request.Request(f"{self.url}/run_code", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(http, timeout=limits.wall_seconds + OVERHEAD_SECONDS) as response:
            reply = json.load(response)
        run = reply if reply["status"] == "SandboxError" else reply["run_result"]
        if run["status"] == "TimeLimitExceeded":
            outcome = Outcome.TIMEOUT
        elif run["status"] == "Finished":
            outcome = Outcome.OK if run.get("return_code") == 0 else Outcome.EXCEPTION
        else:
            raise ValueError(reply.get("message") or f"the server answered {run['status']!r}")
        stdout = in_bytes(run.get("stdout"))
        return Result(outcome, stdout, in_bytes(run.get("stderr")), reports=(stdout,))


def in_bytes(text: str | None) -> bytes:
    return (text or "").encode("utf-8", "surrogatepass")
