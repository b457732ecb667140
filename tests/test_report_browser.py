"""The report's page in a real browser, at the width of a phone and of a desk: nothing overflows, nothing is complained about,
and every number of `print(result)` is on it."""

import dataclasses
import html
import json
import math
import pathlib
import re
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
from test_report import HOSTILE, made_run

import fedpact as fp

WIDTHS = (390, 1200)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NUMBER = re.compile(r"(?:(?<![\w.])[-−])?(?<!\w)(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-−+]?\d+)?")

# Frames have the widths of the windows that they stand for; pages are as they were written, and run no script themselves.
SCRIPT = """
addEventListener("load", () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, closed = page.documentElement.scrollWidth;
    const texts = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT), words = [];
    while (texts.nextNode()) if (texts.currentNode.parentNode.nodeName !== "title") words.push(texts.currentNode.data);
    const text = words.join(" ");
    page.querySelectorAll("details").forEach(one => { one.open = true; });
    const late = [...page.querySelectorAll("h1, h2, h3, p, li, dd, pre, figcaption, .scrolled, figure > svg")]
      .filter(one => one.getBoundingClientRect().right > page.documentElement.clientWidth + 1).map(one => one.outerHTML);
    return {closed, open: page.documentElement.scrollWidth, inside: page.documentElement.clientWidth, text, late,
            first: page.querySelector("h2").getBoundingClientRect().top};
  });
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
"""


@pytest.fixture(scope="module")
def results() -> dict[str, fp.Result]:
    """One with counted rates and an evaluation, and one of many parties without decisions."""
    rng = np.random.default_rng(0)
    x, sex = rng.normal(size=(900, 3)), rng.choice(["f", "m"], 900)
    y = (x @ [1.0, -1.0, 0.5] + 0.5 * (sex == "m") + rng.normal(size=900) > 0.5).astype(int)
    table = fp.Table(x=x, y=y, sex=sex)
    model = fp.linear(bias=True)
    loss = fp.mean(fp.logistic_loss(model))
    found = fp.mean(fp.decisions(model), where=fp.col("y") == 1) >= 0.85
    gap = fp.demographic_parity_gap(fp.decisions(model), group="sex").pooled() <= 0.1
    three = fp.split_rows(table, parties=["north", "south", "west"], stratify="y", seed=0)
    stated = fp.minimize(loss, [found.named("ill found"), gap.named("gap between sexes")], fp.l2(1e-3))
    counted = fp.solve(stated, three)
    counted = dataclasses.replace(counted, evaluation=fp.evaluate(counted, three, label="y", group="sex"))
    missed = fp.mean(fp.logistic_loss(model), where=fp.col("y") == 1) <= 0.45
    many = fp.solve(fp.minimize(loss, [missed], fp.l2(1e-3)), fp.split_rows(table, parties=20, stratify="y", seed=0))
    assert counted.converged
    assert many.converged
    return {"counted": counted, "many": many}


@pytest.fixture(scope="module")
def pages(results: dict[str, fp.Result], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    """What the browser sees of each page at each width; it is started once, and must not complain."""
    if BROWSER is None:
        pytest.skip("no browser is installed: chromium would look at the page")
    folder = tmp_path_factory.mktemp("pages")
    paths = {name: result.report(folder / f"{name}.html") for name, result in results.items()}
    wide = (*HOSTILE, "w" * 400)
    made = made_run(40, 8, ((-math.inf, 0.2),) * 3, wide)
    named = tuple(
        dataclasses.replace(r, name="n" * 300 + r.name, multipliers=tuple(abs(m) + 1e9 for m in r.multipliers))
        for r in made.certificate.constraints
    )
    made.certificate = dataclasses.replace(made.certificate, constraints=named)
    made.write(folder / "hostile.html")
    paths["hostile"] = folder / "hostile.html"
    asked = [(name, width) for name in paths for width in WIDTHS]
    frames = "".join(
        f'<iframe width="{width}" height="800" style="border:0" srcdoc="{html.escape(paths[name].read_text("utf-8"))}"></iframe>'
        for name, width in asked
    )
    outer = folder / "frames.html"
    outer.write_text(
        f'<!doctype html><meta charset="utf-8"><body>{frames}<pre id="seen"></pre><script>{SCRIPT}</script></body>',
        "utf-8",
    )
    told = _browse(outer, folder / "profile")
    seen = json.loads(html.unescape(told.split('<pre id="seen">')[1].split("</pre>")[0]))
    return dict(zip(asked, seen, strict=True))


def _browse(page: pathlib.Path, profile: pathlib.Path) -> str:
    """The page's elements after its script has run."""
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1300,900",
        "--enable-logging=stderr", f"--user-data-dir={profile}", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    complaints = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    assert not complaints
    return ran.stdout


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["counted", "many", "hostile"])
def test_nothing_overflows(pages: dict[tuple[str, int], Any], name: str, width: int) -> None:
    seen = pages[name, width]
    assert seen["inside"] == width
    assert seen["closed"] <= width
    assert seen["open"] <= width
    assert seen["late"] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_what_was_promised_is_on_the_first_screen(pages: dict[tuple[str, int], Any], width: int) -> None:
    assert pages["counted", width]["first"] < 500
    assert "What was promised" in pages["counted", width]["text"]


def numbers(text: str) -> set[float]:
    return {float(found.replace("−", "-").replace(",", "")) for found in NUMBER.findall(text)}


@pytest.mark.parametrize("name", ["counted", "many"])
def test_every_number_of_the_print_is_on_the_page(
    pages: dict[tuple[str, int], Any], results: dict[str, fp.Result], name: str
) -> None:
    printed = numbers(str(results[name]))
    assert len(printed) > 15
    assert printed - numbers(pages[name, 390]["text"]) == set()


def test_numbers_are_found_in_text() -> None:
    assert numbers("≤ 0.92, −1.5e-7 of 12,000 rows .773-.788 (1.9e+03) w2 p") == {
        0.92,
        -1.5e-7,
        12000.0,
        0.773,
        0.788,
        1900.0,
    }


def test_the_browser_would_complain(tmp_path: pathlib.Path) -> None:
    if BROWSER is None:
        pytest.skip("no browser is installed: chromium would look at the page")
    policy = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'
    inside = html.escape(
        f"<!doctype html>{policy}<style>p {{ width: 900px }}</style><p>blocked by the page's own policy</p>"
    )
    page = tmp_path / "page.html"
    page.write_text(f'<!doctype html><iframe srcdoc="{inside}"></iframe>')
    with pytest.raises(AssertionError, match="Content Security"):
        _browse(page, tmp_path / "profile")
