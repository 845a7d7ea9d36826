"""Puts tables that scripts make into pages that people write."""

import re
from pathlib import Path


def put_tables(path: Path, text: str, name: str = "tables") -> None:
    """Replace the text between the markers `<!-- NAME -->` and `<!-- end of NAME -->` of a page."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    page = path.read_text() if path.is_file() else ""
    if start not in page:
        page += f"{start}\n{end}\n"
    new, count = re.subn(f"{start}.*?{end}", lambda _: f"{start}\n\n{text}\n{end}", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{path}: expected one pair of the markers {start} and {end}, found {count}.")
    path.write_text(new)
