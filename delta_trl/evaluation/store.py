"""
The files of an evaluation. Samples are written chunk by chunk; a chunk counts when all of its lines are there.

    settings.json       what determines the samples; an evaluation cannot continue with other settings
    samples.jsonl       all samples, in order
    samples-N.part      those of process N, until they are merged into samples.jsonl
    results.json        the numbers
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from ..arguments.errors import UsageError
from ..files import differences, in_words, write_json


ChunkKey = tuple[str, int]  # benchmark and number of the chunk in it


class Store:
    """
    Samples on disk.

    Args:
        folder (`Path`): The output directory.
        chunks (`dict[ChunkKey, int]`): How many samples each chunk has.

    Raises:
        UsageError: If the folder holds a model.
    """

    def __init__(self, folder: Path, chunks: dict[ChunkKey, int]):
        if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
            raise UsageError(f"output_dir={str(folder)!r} holds a model: choose another --output_dir for the results.")
        self.folder = folder
        self.chunks = chunks

    @property
    def samples(self) -> Path:
        return self.folder / "samples.jsonl"

    def check_settings(self, settings: dict) -> None:
        """
        Write the settings, or compare them with those of the evaluation that is continued. One that has not sampled
        anything, as its model could not be loaded, does not count.

        Raises:
            UsageError: If they differ; names the differences.
        """
        path = self.folder / "settings.json"
        if not path.is_file() or not any(part.stat().st_size for part in self.folder.glob("samples*")):
            write_json(settings, path)
            return
        if changed := differences(json.loads(path.read_text()), json.loads(json.dumps(settings))):
            raise UsageError(
                f"{self.folder} holds results of other settings: {in_words(changed)}. Use the same settings, or "
                "choose another --output_dir."
            )

    def merge(self) -> set[ChunkKey]:
        """Put the complete chunks of all files into `samples.jsonl`, in order, and return their keys."""
        parts = sorted(self.folder.glob("samples-*.part"))
        complete: dict[ChunkKey, list[bytes]] = {}
        for path in (self.samples, *parts):
            for key, lines in _read_chunks(path).items():
                if len(lines) == self.chunks.get(key) and key not in complete:
                    complete[key] = lines
        temporary = self.folder / "samples.jsonl.tmp"
        with temporary.open("wb") as file:
            for key in self.chunks:
                file.writelines(complete.get(key, ()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.samples)
        for path in parts:
            path.unlink()
        return set(complete)

    def write(self, process: int, samples: list[dict]) -> None:
        """Append the samples of one chunk to a process's part file."""
        lines = [json.dumps(sample, ensure_ascii=False, default=str) for sample in samples]
        with (self.folder / f"samples-{process}.part").open("ab") as file:
            file.write(("\n".join(lines) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())


def read_samples(folder: Path) -> Iterator[dict]:
    """The samples of an evaluation, in order."""
    with (folder / "samples.jsonl").open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _read_chunks(path: Path) -> dict[ChunkKey, list[bytes]]:
    chunks: dict[ChunkKey, list[bytes]] = {}
    if path.is_file():
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break  # cut off in the middle of a write
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # damaged: its chunk is sampled again
                chunks.setdefault((row["benchmark"], row["chunk"]), []).append(line)
    return chunks
