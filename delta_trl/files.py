"""Files that are there as a whole or not at all, also if the process is killed."""

import json
import os
from pathlib import Path


def write_atomically(data: bytes, path: Path) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(content: dict, path: Path) -> None:
    write_atomically((json.dumps(content, indent=2) + "\n").encode(), path)
