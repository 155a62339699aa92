"""What the classroom says, in every language: one file, ``phrases.toml``."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files

from kvsim.errors import ConfigError

LANGUAGES = {"en": "English", "fa": "فارسی"}
RIGHT_TO_LEFT = ("fa",)
# Digits after a Latin word would join it, and be read before it; a right-to-left mark keeps them apart.
_LATIN_THEN_DIGIT = re.compile("([A-Za-z)])(?= [\u06f0-\u06f9\u2066])")
_PERSIAN = str.maketrans("0123456789", "۰۱۲۳۴۵۶۷۸۹")


@cache
def phrases() -> dict[str, dict[str, str]]:
    """Return every phrase: key -> language -> text with ``{names}`` in it."""
    table = tomllib.loads(files("kvsim.lesson").joinpath("phrases.toml").read_text(encoding="utf-8"))
    return {f"{group}.{key}": texts for group, keys in table.items() for key, texts in keys.items()}


def check_language(lang: str) -> str:
    """Return a language's code, or refuse it.

    Raises
    ------
    ConfigError
        The language is unknown.
    """
    if lang not in LANGUAGES:
        raise ConfigError(f"unknown language {lang!r}; known: {', '.join(LANGUAGES)}")
    return lang


def say(key: str, lang: str = "en", **values: object) -> str:
    """Return a phrase with its values put in.

    Parameters
    ----------
    key : str
        As in ``phrases.toml``; a text that is no key stands for itself.
    lang : str
        Language.
    values : object
        By the names in the text. Whole numbers get the language's digits.
    """
    texts = phrases().get(key)
    if texts is None:
        return key
    text = texts[lang].format(**{name: _shown(value, lang) for name, value in values.items()})
    return _LATIN_THEN_DIGIT.sub("\\1\u200f", text) if lang in RIGHT_TO_LEFT else text


def _shown(value: object, lang: str) -> str:
    """Write a value as a language does; what has no letters in it gets its digits, and keeps its direction."""
    if isinstance(value, int):
        return number(value, lang)
    text = str(value)
    if lang not in RIGHT_TO_LEFT:
        return text
    digits = text if any("a" <= letter.lower() <= "z" for letter in text) else text.translate(_PERSIAN)
    return f"\u2066{digits}\u2069"


def number(value: int, lang: str = "en") -> str:
    """Write a whole number in a language's digits, thousands apart."""
    text = f"{value:,}"
    return text.replace(",", "٬").translate(_PERSIAN) if lang == "fa" else text
