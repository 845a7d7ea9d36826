"""For mkdocs. The first page is the README. Links to files beside docs/ become links to the repository's site."""

import re
from pathlib import Path

from mkdocs.structure.files import File


def on_files(files, config):
    readme = Path(config["config_file_path"]).with_name("README.md").read_text()
    page = re.sub(r"\]\((?!http|docs/)", "](../", readme).replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=page))
    return files


def on_page_markdown(markdown: str, config, **_) -> str:
    return markdown.replace("](../", f"]({config['repo_url']}/blob/main/")
