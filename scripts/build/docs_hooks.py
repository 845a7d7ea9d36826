"""
For mkdocs. The first page is the README. Links to files beside docs/ become links to the repository's site. References
and types of TRL-style docstrings, which are Markdown within code, become plain code.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File


def on_files(files, config):
    readme = Path(config["config_file_path"]).with_name("README.md").read_text()
    files.append(
        File.generated(
            config, "index.md", content=re.sub(r"\]\((?!http|docs/)", "](../", readme).replace("](docs/", "](")
        )
    )
    return files


def on_page_markdown(markdown: str, config, **_) -> str:
    return markdown.replace("](../", f"]({config['repo_url']}/blob/main/")


def on_page_content(html: str, **_) -> str:
    html = re.sub(r"\[<code>~?(?:[\w.]*\.)?(\w+)</code>\]", r"<code>\1</code>", html)
    return re.sub(r"<code>([^<]*[`*][^<]*)</code>", lambda found: f"<code>{_plain(found[1])}</code>", html)


def _plain(text: str) -> str:
    text = re.sub(r"\[`~?(?:[\w.]*\.)?(\w+)`\]", r"\1", text)
    return text.replace("`", "").replace("*optional*", "optional")
