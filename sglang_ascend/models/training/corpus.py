"""The training text: the King James Version, as Debian's ``bible-kjv`` ships it.

The text is in the public domain (translated in 1611). The package holds it compressed; its own
``bible`` program prints it, one verse a line, each led by its reference ("Ge1:1 In the ...").
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from sglang_ascend.errors import ConfigError

_NAMES = [
    "Genesis",
    "Exodus",
    "Leviticus",
    "Numbers",
    "Deuteronomy",
    "Joshua",
    "Judges",
    "Ruth",
    "1 Samuel",
    "2 Samuel",
    "1 Kings",
    "2 Kings",
    "1 Chronicles",
    "2 Chronicles",
    "Ezra",
    "Nehemiah",
    "Esther",
    "Job",
    "Psalm",
    "Proverbs",
    "Ecclesiastes",
    "Song of Solomon",
    "Isaiah",
    "Jeremiah",
    "Lamentations",
    "Ezekiel",
    "Daniel",
    "Hosea",
    "Joel",
    "Amos",
    "Obadiah",
    "Jonah",
    "Micah",
    "Nahum",
    "Habakkuk",
    "Zephaniah",
    "Haggai",
    "Zechariah",
    "Malachi",
    "Matthew",
    "Mark",
    "Luke",
    "John",
    "Acts",
    "Romans",
    "1 Corinthians",
    "2 Corinthians",
    "Galatians",
    "Ephesians",
    "Philippians",
    "Colossians",
    "1 Thessalonians",
    "2 Thessalonians",
    "1 Timothy",
    "2 Timothy",
    "Titus",
    "Philemon",
    "Hebrews",
    "James",
    "1 Peter",
    "2 Peter",
    "1 John",
    "2 John",
    "3 John",
    "Jude",
    "Revelation",
]
_LINE = re.compile(r"^(\d?[A-Za-z]+)(\d+):(\d+) (.+)$")
_VERSES = 31102

# Chapters of different genres without a parallel account elsewhere in the text, so that a model
# cannot have seen them under another reference. About 20 KB together.
HELD_OUT = (
    ("Genesis", 24),
    ("Ruth", 2),
    ("Psalm", 104),
    ("Isaiah", 55),
    ("Acts", 12),
    ("Romans", 8),
)


class Verse(NamedTuple):
    book: str
    chapter: int
    number: int
    text: str

    @property
    def reference(self) -> str:
        return f"{self.book} {self.chapter}:{self.number}"


def read_verses(root: Path = Path("/")) -> list[Verse]:
    """All 31,102 verses in order.

    Args:
        root: folder under which the Debian packages are installed or unpacked (``dpkg -x``).

    Raises:
        ConfigError: the packages are not there, or the program prints something else.
    """
    program, text = root / "usr/bin/bible", root / "usr/lib/bible.data"
    # Without its concordance the program prints nearly everything and then crashes.
    needed = (program, text, text.with_name("bible.data.conc"))
    absent = [str(path) for path in needed if not path.is_file()]
    if absent:
        raise ConfigError(
            f"training text not found: {' and '.join(absent)} missing; run `apt-get install"
            " bible-kjv`, or `apt-get download bible-kjv bible-kjv-text`, unpack both with"
            " `dpkg -x` into one folder and name it with --corpus-root"
        )
    printed = subprocess.run(
        [str(program), "-p", str(text.parent), "-f", "gen1:1-rev22:21"],
        check=False,  # reported below, with the verse count
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    verses = list(_parse(printed.stdout))
    if printed.returncode or len(verses) != _VERSES:
        raise ConfigError(
            f"{program} printed {len(verses)} verses (exit code {printed.returncode}); expected"
            f" {_VERSES}: reinstall bible-kjv and bible-kjv-text 4.38"
        )
    return verses


def _parse(printed: str):
    names: dict[str, str] = {}
    for line in printed.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        book, chapter, number, text = match.groups()
        # The program abbreviates; the books come in canonical order, so the n-th new one is known.
        if book not in names and len(names) < len(_NAMES):
            names[book] = _NAMES[len(names)]
        yield Verse(names.get(book, book), int(chapter), int(number), text.strip())


def split(verses: list[Verse]) -> tuple[list[list[Verse]], list[list[Verse]]]:
    """(training chapters, held-out chapters), each chapter a list of its verses in order."""
    chapters: dict[tuple[str, int], list[Verse]] = {}
    for verse in verses:
        chapters.setdefault((verse.book, verse.chapter), []).append(verse)
    held_out = [chapters.pop(key) for key in HELD_OUT]
    return list(chapters.values()), held_out
