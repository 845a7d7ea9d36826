r"""Golds that are congruences: for `x \equiv 5 \pmod 7` an answer may be it, 5, or `x = 7k + 5`."""

import re
from functools import partial

import sympy

from .guards import RefusedError, is_undone, refuse_large
from .lists import split_elements
from .normalization import matched, squeeze
from .parsing import UnreadableError, fraction, parse
from .values import equal_values, is_name, same_name, split_equation


MODULUS = re.compile(r"(.*?)\s*\(?\s*\\(?:p|b)?mod\s*\{?\s*(\w+)\s*\}?\s*\)?\s*", re.DOTALL)


def equal_congruences(gold: str, answer: str) -> bool | None:
    """Whether the residues are the same; None if the gold is not a congruence, or has several moduli."""
    wanted = _read(gold)
    if wanted is None:
        return None
    name, residues, modulus = wanted
    given = _read(answer) or _general(answer, modulus) or _plain(answer)
    if given is None or (name and given[0] and not same_name(name, given[0])) or given[2] not in (modulus, ""):
        return False
    return matched(residues, given[1], partial(_same, modulus if given[2] else ""))


def _read(text: str) -> tuple[str, list[str], str] | None:
    """The name, the residues and the modulus of `x \\equiv 1, 3 \\pmod 4`; None for other texts."""
    text = re.sub(r"^([A-Za-z])\s*\\b?mod\s*\{?\s*(\w+)\s*\}?\s*=(.*)$", r"\1 \\equiv \3 \\pmod{\2}", text)
    names, residues, moduli = set(), [], []
    matches = [(piece, MODULUS.fullmatch(piece)) for piece in split_elements(text)]
    if not matches or not matches[-1][1]:
        return None
    for piece, match in matches:
        if match:
            moduli.append(match[2])
        sides = split_equation(match[1] if match else piece)
        if len(sides) > 2 or not sides[-1] or (len(sides) == 2 and not is_name(sides[0])):
            return None
        if len(sides) == 2:
            names.add(squeeze(sides[0]))
        residues.append(sides[-1])
    if len(set(moduli)) > 1 or len(names) > 1:
        return None
    return (names.pop() if names else "", residues, moduli[0])


def _general(text: str, modulus: str) -> tuple[str, list[str], str] | None:
    """Read `x = 7k + 5` as a congruence modulo 7."""
    *names, value = split_equation(text)
    try:
        expression = parse(value, False, False)
    except UnreadableError:
        return None
    if not (isinstance(expression, sympy.Expr) and len(expression.free_symbols) == 1 and modulus.isdigit()):
        return None
    refuse_large(expression)
    if is_undone(expression) or any(part.is_number for part in expression.atoms(sympy.Pow)):
        raise RefusedError("restates the problem: arithmetic")
    polynomial = expression.as_poly(*expression.free_symbols)
    if polynomial is None or polynomial.degree() != 1 or abs(polynomial.LC()) != int(modulus):
        return None
    return (names[0] if names else "", [str(polynomial.coeff_monomial(1))], modulus)


def _plain(text: str) -> tuple[str, list[str], str] | None:
    """Read residues without a modulus."""
    *names, values = split_equation(text)
    if len(names) > 1 or not all(map(is_name, names)):
        return None
    return (names[0] if names else "", split_elements(values), "")


def _same(modulus: str, first: str, second: str) -> bool:
    one, other = fraction(first), fraction(second)
    if one is None or other is None or not modulus.isdigit() or int(modulus) == 0:
        return equal_values(first, second)
    return one.denominator == other.denominator == 1 and (one - other) % int(modulus) == 0
