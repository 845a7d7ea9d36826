"""
For mkdocs. Links out of docs/ become links to the repository's site. References and types of TRL-style docstrings,
which are Markdown within code, become plain code.
"""

import re


def on_page_markdown(markdown: str, config, **_) -> str:
    return markdown.replace("](../scripts/", f"]({config['repo_url']}/blob/main/scripts/")


def on_page_content(html: str, **_) -> str:
    html = re.sub(r"\[<code>~?(?:[\w.]*\.)?(\w+)</code>\]", r"<code>\1</code>", html)
    return re.sub(r"<code>([^<]*[`*][^<]*)</code>", lambda found: f"<code>{_plain(found[1])}</code>", html)


def _plain(text: str) -> str:
    text = re.sub(r"\[`~?(?:[\w.]*\.)?(\w+)`\]", r"\1", text)
    return text.replace("`", "").replace("*optional*", "optional")
