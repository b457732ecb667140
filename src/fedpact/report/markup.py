"""Text and numbers as HTML: all user-supplied names are escaped here."""

import html
import math
import re

LONGEST_NAME = 120

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def text(words: object) -> str:
    """Text made safe for HTML text and attributes; control and bidirectional characters become �."""
    return html.escape(UNPRINTABLE.sub("\ufffd", str(words)))


def name(words: object) -> str:
    """A name, truncated to fit a table; the full name is in the tooltip."""
    full = str(words)
    if len(full) <= LONGEST_NAME:
        return text(full) if full.strip() else "<i>(no name)</i>"
    return f'<span title="{text(full[:2000])}">{text(full[: LONGEST_NAME - 1])}…</span>'


def number(x: float, digits: int = 6) -> str:
    """0.123457, −1.2e-7, ∞: plain text."""
    if math.isnan(x):
        return "not a number"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    written = re.sub(r"e([+-])0*(\d)", lambda m: "e" + m[1].replace("+", "") + m[2], f"{x:.{digits}g}")
    return written.replace("-", "−", 1) if x < 0 else written if x else "0"


def power_of_ten(exponent: int) -> str:
    """1, 10, 10⁻³."""
    return {0: "1", 1: "10"}.get(exponent) or "10" + str(exponent).translate(SUPERSCRIPTS)


def bound(words: str) -> str:
    """A constraint's bound with typographic signs: `<= 0.2` is ≤ 0.2."""
    return text(words.replace("<=", "≤").replace(">=", "≥").replace("==", "="))


def plural(count: int, word: str) -> str:
    """1 party, 1,200 parties."""
    many = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{count:,} {word if count == 1 else many}"


def sentence(words: str) -> str:
    """With a capital and a full stop."""
    words = words.strip()
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) or not words else ".")
