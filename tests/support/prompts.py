"""Forty prompts for exactness tests: short, long, code, many scripts, digits, repetition."""

from __future__ import annotations

_STEMS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "In the beginning God created",
    "1, 1, 2, 3, 5, 8, 13,",
    "Q: What is the boiling point of water in Celsius?\nA:",
    "SELECT name, age FROM users WHERE",
    "To be, or not to be, that is",
    "Die Würde des Menschen ist",
    "El cielo es azul porque",
    "日本の首都は",
    "Привет, как дела?",
    "🙂 🙃 🙂 🙃",
    "The quick brown fox jumps over the lazy dog. " * 3,
    "A",
    " ",
    "\n\n\n",
    "Dear Sir or Madam,\n\nI am writing to",
    "import torch\nimport numpy as np\n\n",
    "<html><head><title>",
    "List three fruits: apple,",
    "And it came to pass,",
    "the the the the the the the",
    "E = mc^2 means that",
    "Roses are red,",
    "HTTP/1.1 404 Not Found\r\n",
    "The patient presented with",
    "Chapter 1\n\nIt was a",
    "9.11 and 9.9: which is larger?",
    "if (x > 0) { return",
    "Summer, autumn, winter,",
    "My favourite colour is",
    "The LORD is my shepherd;",
    "Translate to French: Good morning ->",
    "Thou shalt not",
    "0123456789" * 4,
    "abc" * 20,
    "A long time ago, in a galaxy",
    "Once there lived a king who had",
    "Water is made of hydrogen and",
]

#: A text of several hundred tokens, for chunked prefill.
LONG_PROMPT = " ".join(
    f"Item {i} of the list is worth {i * 7 % 31} coins, and item {i + 1} is next to it."
    for i in range(60)
)

PROMPTS = [*_STEMS, LONG_PROMPT]
assert len(PROMPTS) >= 40
