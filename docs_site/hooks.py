"""What mkdocs does beside its own: pages of files outside docs/, links to these, and links from names to the API.

Pages in docs/ link to programs and to the change log by their place in the repository (`../examples/pact.py`), as GitHub
wants it. On the site these are pages of their own. A link to any other file leads to the repository where mkdocs.yml has a
`repo_url`, and is plain text where it has none. A link to a file that does not exist stays as it is, which mkdocs warns of.

A name in code, `fp.solve(...)`, is a link to its place in the API wherever it stands in a sentence or a table.
"""

import os
import pathlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = pathlib.Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
NAME = re.compile(r"(?P<left><(?P<tag>a|pre|h1)\b.*?</(?P=tag)>)|<code>fp\.(?P<name>\w+)[^<]*</code>", re.DOTALL)
API = {
    name: f"api/{page.stem}.html#fedpact.{name}"
    for page in (ROOT / "docs" / "api").glob("*.md")
    for name in re.findall(r"^::: fedpact\.(\w+)$", page.read_text(), re.MULTILINE)
}
OUTSIDE = {"CHANGELOG.md": "changelog.md"} | {
    f"examples/{program.name}": f"examples/{program.stem}.md" for program in sorted((ROOT / "examples").glob("*.py"))
}


def program_page(source: str, file: str) -> str:
    """A page that shows a program, with its name as title."""
    return f"# {pathlib.Path(file).name}\n\n`python {file}` runs it from a checkout.\n\n```python\n{source}```\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, page in OUTSIDE.items():
        text = (ROOT / path).read_text()
        files.append(File.generated(config, page, content=program_page(text, path) if path.endswith(".py") else text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links led from places in the repository to places on the site."""
    own = next((path for path, made in OUTSIDE.items() if made == page.file.src_uri), f"docs/{page.file.src_uri}")
    return LINK.sub(lambda link: as_on_the_site(link, own, page.file.src_uri, config.repo_url), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with names led to the API."""
    return NAME.sub(lambda code: to_api(code, page.url), html)


def to_api(code: re.Match[str], url: str) -> str:
    place = API.get(code["name"] or "")
    return f'<a href="{get_relative_url(place, url)}">{code[0]}</a>' if place else code[0]


def as_on_the_site(link: re.Match[str], source: str, page: str, repository: str | None) -> str:
    """A link of the file `source` of the repository, as the page `page` of the site has it."""
    text, target, anchor = link[1], link[2], link[3] or ""
    path = os.path.normpath(os.path.join(os.path.dirname(source), target))
    if path in OUTSIDE or (path.startswith("docs/") and source in OUTSIDE):
        place = OUTSIDE.get(path, path.removeprefix("docs/"))
        return f"[{text}]({os.path.relpath(place, os.path.dirname(page) or '.')}{anchor})"
    if path.startswith(("docs/", "..")) or not (ROOT / path).exists():
        return link[0]
    return f"[{text}]({repository.rstrip('/')}/blob/HEAD/{path}{anchor})" if repository else text
