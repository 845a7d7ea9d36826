r"""Groups, rings and fields by name: `\mathbb{Z}/2\mathbb{Z}`, `\mathbb{Q}(\sqrt{2})`, `\mathbb{Z}^2 \times S_3`.

latex2sympy reads none of them. Two are equal if they have the same factors in any order; a finite cyclic group counts
as the product of cyclic groups of prime power order.
"""

import re
from dataclasses import dataclass

import sympy

from .normalization import closing, matched, split_top_level
from .values import EQUALITY, equal_values, is_name


MAX_ORDER = 10**12
MAX_PARTS = 20
PRODUCT = re.compile(r"\\(?:times|oplus)(?![A-Za-z])")
SEPARATOR = re.compile(r"\s*(?:,|;|\\text\s*\{\s*,?\s*(?:and|or)\s*\})\s*")
LETTER = r"(?:\\mathbb\s*\{\s*([A-Z])\s*\}|([ZQRCNFHGSAD](?![A-Za-z])))"
ORDER = r"(?:\{\s*(\d+)\s*\}|\(\s*(\d+)\s*\)|\\langle\s*(\d+)\s*\\rangle|(\d+))"
QUOTIENT = re.compile(rf"{LETTER}\s*/\s*{ORDER}\s*{LETTER}?")
NAMED = re.compile(rf"{LETTER}\s*_\s*(?:\{{\s*(\w+)\s*\}}|(\w))")
GALOIS = re.compile(r"(?:GF|\\text\s*\{\s*GF\s*\})\s*\(\s*(\d+)\s*\)")
EXTENSION = re.compile(rf"{LETTER}\s*([(\[])(.*)[)\]]")
POWER = re.compile(r"(.*?)\s*\^\s*(?:\{\s*(.+?)\s*\}|(\w|\*|\+|-|\\times))", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """One factor: its kind, its name or order, and the adjoined generators."""

    kind: str
    name: str
    generators: tuple[str, ...] = ()


def read_structures(text: str) -> list[list[Part]] | None:
    """The structures that a gold lists; None if it holds anything else, or only sets such as the real numbers."""
    if "\\mathbb" not in text:
        return None
    read = [read_structure(one) for one in split_top_level(text, SEPARATOR)]
    found = [parts for parts in read if parts]
    special = any(len(parts) > 1 or parts[0].kind != "set" for parts in found)
    return found if special and len(found) == len(read) else None


def read_structure(text: str) -> list[Part] | None:
    r"""The factors of a product of structures; None for other texts. In `G \cong ...`, G is only a name."""
    sides = [side.strip() for side in split_top_level(text, EQUALITY)]
    read = [_factors(side) for side in sides]
    found = [parts for parts in read if parts]
    if not found or not all(parts or is_name(side) for parts, side in zip(read, sides, strict=True)):
        return None
    return found[0] if all(_same(found[0], other) for other in found[1:]) else None


def same_structures(gold: list[list[Part]], answer: str) -> bool:
    given = [read_structure(one) for one in split_top_level(answer, SEPARATOR)]
    return all(given) and matched(gold, given, _same)


def _same(first: list[Part], second: list[Part]) -> bool:
    return matched(first, second, _same_part)


def _same_part(first: Part, second: Part) -> bool:
    names_agree = (first.kind, first.name) == (second.kind, second.name)
    return names_agree and matched(first.generators, second.generators, equal_values)


def _factors(text: str) -> list[Part] | None:
    parts: list[Part] = []
    for factor in split_top_level(text.strip(), PRODUCT):
        read = _factor(factor.strip())
        if read is None or len(parts := parts + read) > MAX_PARTS:
            return None
    return parts


def _factor(text: str) -> list[Part] | None:
    if text.startswith("(") and closing(text, 0) == len(text) - 1:
        return _factors(text[1:-1])
    if match := QUOTIENT.fullmatch(text):
        letters = {letter for letter in (match[1], match[2], match[7], match[8]) if letter}
        return _cyclic(int(next(filter(None, match.groups()[2:6])))) if letters == {"Z"} else None
    if match := GALOIS.fullmatch(text):
        return [Part("field", match[1])]
    if match := re.fullmatch(LETTER, text):
        return [Part("set", match[1] or match[2])] if match[1] else None
    if match := NAMED.fullmatch(text):
        letter, index = match[1] or match[2], match[3] or match[4]
        if letter in "ZC" and index.isdigit() and not (letter == "C" and match[1]):
            return _cyclic(int(index))
        return [Part("field" if letter == "F" else "named", index if letter == "F" else f"{letter}_{index}")]
    if (match := EXTENSION.fullmatch(text)) and closing(text, match.start(3)) == len(text) - 1:
        return _extension(match[1] or match[2], match[3], match[4])
    if (match := POWER.fullmatch(text)) and (parts := _factor(match[1].strip())):
        exponent = match[2] or match[3]
        if exponent.isdigit() and 0 < int(exponent) * len(parts) <= MAX_PARTS:
            return parts * int(exponent)
        return [Part(f"{part.kind}^{exponent}", part.name, part.generators) for part in parts]
    return None


def _cyclic(order: int) -> list[Part] | None:
    if not 1 < order < MAX_ORDER:
        return None
    return [Part("cyclic", str(prime**power)) for prime, power in sympy.factorint(order).items()]


def _extension(base: str, bracket: str, inside: str) -> list[Part] | None:
    generators = tuple(part.strip() for part in split_top_level(inside, re.compile(",")))
    if not all(generators) or base not in "QRCZ":
        return None
    # Adjoining an algebraic number gives a field whichever bracket is used; a variable, or π, does not.
    algebraic = all(
        re.fullmatch(r"(?:\\(?:sqrt|frac|cdot)|[\d\s{}()\[\]+/*^-]|i(?![A-Za-z]))+", one) for one in generators
    )
    kind = "field of" if bracket == "(" or (algebraic and base != "Z") else "ring of"
    return [Part(kind, base, generators)]
