"""The site: every page in its menu, every public name in its reference, every link to something that is there."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from types import ModuleType

import pytest

import fedpact as fp
import fedpact.protocol
import fedpact.sklearn
from fedpact.reproduce.table import Rows

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
READ_ALONE = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
MADE = {f"examples/{program.stem}.md" for program in (ROOT / "examples").glob("*.py")} | {"changelog.md"}
PROTOCOL = {
    name for name in vars(fedpact.protocol) if name[0] != "_" and hasattr(vars(fedpact.protocol)[name], "__module__")
}


def of_docs_site(name: str) -> ModuleType:
    """A module of docs_site, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs_site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_code(page: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)


def anchors(page: str) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_menu_once() -> None:
    menu = re.findall(r"([\w/]+\.md)", re.sub(r"#.*", "", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    assert len(menu) == len(set(menu))
    assert set(menu) == PAGES | MADE


def test_every_public_name_is_in_the_reference_once() -> None:
    told = [
        name
        for path in (DOCS / "api").glob("*.md")
        for name in re.findall(r"^::: fedpact\.(\S+)$", path.read_text(), re.MULTILINE)
    ]
    assert len(told) == len(set(told))
    assert set(fp.__all__) - {"__version__"} == {name for name in told if "." not in name}
    assert len(PROTOCOL) > 20
    assert {f"protocol.{name}" for name in PROTOCOL - {"Algorithm"}} == {n for n in told if n.startswith("protocol.")}
    assert {n for n in told if n.startswith("sklearn.")} == {
        "sklearn.FederatedClassifier",
        "sklearn.FederatedRegressor",
    }


@pytest.mark.parametrize("page", READ_ALONE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings_of_the_repository(page: pathlib.Path) -> None:
    """As the pages are read on GitHub; as they are on the site, the build checks."""
    text = page.read_text()
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", without_code(text)):
        file = (page.parent / target) if target else page
        assert file.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(file.read_text()), f"{target} has no heading #{anchor}"


def test_the_notebook_is_that_of_the_page() -> None:
    module = of_docs_site("notebook")
    assert module.NOTEBOOK.read_text() == module.notebook(module.PAGE.read_text()), "run python docs_site/notebook.py"


def test_the_page_of_commands_has_every_command_as_its_help_says() -> None:
    module = of_docs_site("commands")
    text = module.PAGE.read_text()
    assert text == module.page(), "run python docs_site/commands.py"
    from fedpact.cli import app

    for command in app.registered_commands:
        assert command.callback is not None
        assert f"\n## fedpact {command.callback.__name__}\n" in text
    assert "PACT  The pact: a Python file with problem, parties and load(party).  [required]" in text


def test_the_page_of_reproduced_tables_is_made_from_the_rows_of_the_runs() -> None:
    module = of_docs_site("reproduced")
    assert module.PAGE.read_text("utf-8") == module.page(), "run make reproduce-docs"
    files = sorted(module.RESULTS.glob("*.json"))
    assert {module.file_of(name) for name in (*module.TABLES, *module.FIGURES)} >= set(files)
    for file in files:
        kept = json.loads(file.read_text("utf-8"))
        assert kept["rows"], f"{file.name} has no rows"
        for row in kept["rows"]:
            run = kept["runs"][row["run"]]
            assert run.keys() == {"command", "commit", "date", "machine"}
            assert run["command"].startswith(f"fedpact reproduce {kept['name']}")
            assert not re.search(r"/(home|work|tmp|root|Users)/", str(run))


def test_parts_of_an_experiment_are_gathered(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = of_docs_site("reproduced")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    for n in (1, 5):
        rows = Rows("fair-vfl/paces", tmp_path / f"part-{n}.json", n)
        rows.add(method="ours", pace=f"Q = {n}", rounds_near=7, seconds_near=14.0)
    module.gather()
    assert [path.name for path in tmp_path.iterdir()] == ["fair-vfl-paces.json"]
    text = module.table("fair-vfl/paces")
    assert "fedpact reproduce fair-vfl/paces --trials 1\nfedpact reproduce fair-vfl/paces --trials 5\n" in text
    assert "| ours | Q = 1 | 7 | 14 |\n| ours | Q = 5 | 7 | 14 |" in text
    assert module.table("ssca/rows").endswith("*Not computed yet.*")


def build(config: pathlib.Path, out: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """As `make docs` does it."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: make docs")
    words = ["mkdocs", "build", "--strict"]
    assert f"$(BIN)/{' '.join(words)} " in (ROOT / "Makefile").read_text()
    command = [sys.executable, "-m", *words, "--config-file", str(config), "--site-dir", str(out)]
    settings = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", out)
    assert done.returncode == 0, done.stderr
    return out


def test_a_broken_link_is_an_error(tmp_path: pathlib.Path) -> None:
    """With the settings of the site, on a single page without a reference."""
    settings = re.sub(r"\n(hooks|plugins|nav|extra_css):.*(\n .*)*", "", (ROOT / "mkdocs.yml").read_text())
    (tmp_path / "mkdocs.yml").write_text(settings)
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "index.md"
    page.write_text("# Here\n\n[link](index.md#here)\n")
    fine = build(tmp_path / "mkdocs.yml", tmp_path / "out")
    assert fine.returncode == 0, fine.stderr
    links = ["other.md", "index.md#nothing", "../nothing.py", "/index.md"]
    page.write_text("# Here\n\n" + " ".join(f"[link]({link})" for link in links))
    broken = build(tmp_path / "mkdocs.yml", tmp_path / "out")
    assert broken.returncode != 0
    assert "Aborted with 4 warnings" in broken.stdout + broken.stderr
    assert [link for link in links if f"'{link}'" not in broken.stderr] == []


def test_the_site_has_every_page_and_every_name(site: pathlib.Path) -> None:
    for page in PAGES | MADE:
        assert (site / re.sub(r"README\.md$", "index.md", page)).with_suffix(".html").exists()
    reference = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    names = {*fp.__all__, *(f"protocol.{name}" for name in PROTOCOL)} - {"__version__", "protocol.Algorithm"}
    assert {name for name in names if f'id="fedpact.{name}"' not in reference} == set()
    led = re.findall(r'<a href="([\w./]+)#fedpact\.(\w+)"><code>fp\.(\w+)', (site / "index.html").read_text())
    assert ("api/promises.html", "promise", "promise") in led  # names in sentences lead to the reference
    assert "parties</code>: who holds which rows or columns" in reference  # docstrings, as Markdown


def test_the_site_shows_lists_and_tables_as_such(site: pathlib.Path) -> None:
    """Python's Markdown wants an empty line before a list or a table, GitHub does not."""
    for path in site.rglob("*.html"):
        for paragraph in re.findall(r"<p>(.*?)</p>", path.read_text(), re.DOTALL):
            assert not re.search(r"\n(- |1\. |\|)|```", paragraph), f"{path.relative_to(site)}: {paragraph[:200]}"


def test_pages_of_the_site_ask_no_other_host(site: pathlib.Path) -> None:
    page = (site / "index.html").read_text()
    assert (
        re.findall(r'<(?:script|img)[^>]* src="https?:[^"]*"|<link[^>]*rel="stylesheet"[^>]*href="https?:[^"]*"', page)
        == []
    )


def test_links_that_leave_the_pages() -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs")
    hooks = of_docs_site("hooks")

    def led(link: str, source: str, page: str, repository: str | None = None) -> str:
        return hooks.LINK.sub(lambda found: hooks.as_on_the_site(found, source, page, repository), link)

    assert led("[p](../examples/pact.py)", "docs/flower.md", "flower.md") == "[p](examples/pact.md)"
    assert (
        led("[c](../../CHANGELOG.md#a)", "docs/decisions/README.md", "decisions/README.md") == "[c](../changelog.md#a)"
    )
    assert led("[r](docs/runs.md#a)", "CHANGELOG.md", "changelog.md") == "[r](runs.md#a)"
    assert led("[l](../LICENSE)", "docs/flower.md", "flower.md") == "l"
    assert (
        led("[l](../LICENSE)", "docs/a.md", "a.md", "https://git.example.org/x/")
        == "[l](https://git.example.org/x/blob/HEAD/LICENSE)"
    )
    for kept in (
        "[n](../nothing.py)",
        "[n](../../outside.py)",
        "[r](runs.md)",
        "[h](#here)",
        "[w](https://example.org/a)",
    ):
        assert led(kept, "docs/flower.md", "flower.md") == kept
