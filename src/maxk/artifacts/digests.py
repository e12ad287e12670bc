"""Digests of JSON content, which identify settings and results. Standard library only: `maxk grade` uses them too."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(content: Any) -> str:
    """JSON with sorted keys: equal content gives equal text."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest_of_text(text: str) -> str:
    """SHA-256 (12 hex digits) of a text, lone surrogates included; identifies the programs of a problem."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]


def digest_of(content: Any) -> str:
    """SHA-256 (16 hex digits) of JSON content."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:16]
