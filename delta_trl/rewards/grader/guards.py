r"""Refuses answers before anything is evaluated: restatements of the problem, and what is too large."""

import math
import re
from collections.abc import Iterator

import sympy

from .normalization import split_top_level


MAX_DIGITS = 20_000
MAX_NESTING = 12  # sympy takes seconds for the value of deeper fractions
MAX_FACTORED = 10**12
MIN_CLOSED = 1000  # 2^{10} - 1 is a closed form of 1023; 3^2 + 16 is not one of 25, nor is a sum of two powers
MIN_SQUARE = 10**9  # nor is 40^2 + 9^2, or with cubes
COMPUTED = (sympy.factorial, sympy.binomial)
I_SYMBOL = sympy.Symbol("i", real=True)  # how latex2sympy reads the letter i

# Operations that leave the work to the grader. An answer may use one if the gold does.
PATTERNS = {
    "integral": r"\\(?:i*int|oint|intop)",
    "sum": r"\\sum",
    "product": r"\\prod",
    "limit": r"\\lim(?:sup|inf)?",
    "determinant": r"\\det|\\begin\s*\{(?:vmatrix|Vmatrix)\}",
    "gcd": r"\\gcd|\\lcm|(?<![A-Za-z])(?:gcd|lcm)(?=\s*\()|\\text\s*\{\s*(?:gcd|lcm)",
    "extremum": r"\\max|\\min|(?<![A-Za-z])(?:max|min)(?=\s*\()",
    "mod": r"\\[bp]?mod",
    "floor": r"\\lfloor|\\lceil|\\floor|\\ceil",
    "absolute value": r"\||\\abs|\\l?vert",
    "logarithm": r"\\log|\\ln|\\lg",
    "trigonometry": r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)(?!h)",
    "hyperbolic": r"\\(?:arc|ar)?(?:sinh|cosh|tanh|coth)",
    "dots": r"\\[lcv]?dots[cbmio]?|\.\.\.",
    "derivative": r"\\frac\s*\{\s*(?:d|\\partial)[^{}]*\}\s*\{\s*(?:d|\\partial)\s*[A-Za-z\\]|\\nabla\b",
    "gamma": r"\\Gamma\s*\(|\\zeta|\\operatorname",
    "transform": r"\\xrightarrow",
    "negation": r"\\neg|\\lnot",
    "intersection": r"\\cap(?![A-Za-z])",
    "matrix operation": r"\\end\s*\{\w*(?:matrix|array)\}\s*[)\]]?\s*(?:\^|[-+*]|\\(?:cdot|times|begin)(?![A-Za-z]))",
}
OPERATIONS = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}
IMPLIED = {"hyperbolic": re.compile(r"e\s*\^|\\exp|\\log|\\ln"), "logarithm": re.compile(r"\\ar\w*h(?![A-Za-z])")}
HIDDEN = re.compile(
    r"\\(?:phantom|hphantom|vphantom|color|textcolor|cancel|sout|xcancel|bcancel|not|rule|href|tag|def|let)"
)
# `\arcsin(1/2)` is a closed form of a multiple of π, but only if it is the whole answer.
NUMBER_ARGUMENT = r"(?:-?\s*(?:[\d./\s]|\\(?:frac|sqrt)(?![A-Za-z])|[{}])+)"
ANGLE = re.compile(
    r"-?\s*\\(?:arc(?:sin|cos|tan|cot|sec|csc)|(?:sin|cos|tan|cot|sec|csc)\s*\^\s*\{?\s*-\s*1\s*\}?)\s*"
    rf"(?:\(\s*{NUMBER_ARGUMENT}\)|{NUMBER_ARGUMENT})\s*"
)
IMAGINARY = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
IMAGINARY_PART = re.compile(r"0\s*[-+][^-+]*|[-+]?[^-+]+[-+]\s*0")  # 0 + 3i and 3i + 0 give both parts
ADDED_ZERO = re.compile(r"[-+]\s*0(?![\d.,i]|\s*i)|(?<![\d.,])0\s*\+")
LONG_EXPONENT = re.compile(r"\^\s*\{?\s*[-+]?\s*\d{5,}")
TOWER = re.compile(r"\^\s*\{[^{}]*\d\s*\^")
BIG_FACTORIAL = re.compile(r"\d{5,}\s*\)?\s*!|!\s*\)?\s*!")
NUMBER = r"\s*-?\s*[\d.]+\s*"
SIMPLE_FRACTION = re.compile(rf"\\frac\s*\{{{NUMBER}\}}\s*\{{{NUMBER}\}}|[\d.]+\s*(?:/|\\div(?![A-Za-z]))\s*[\d.]+")
FRACTION_OF_FRACTIONS = re.compile(
    r"Q\s*\)?\s*(?:/|\\div)|(?:/|\\div)\s*\(?\s*Q|\\frac\s*\{\s*-?Q\s*\}(?!\s*\{\s*1\s*\})|\\frac\s*\{[^{}]*\}\s*\{\s*Q\s*\}"
)
MIXED = re.compile(r"\d\s*\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}")
BIG_BINOMIAL = re.compile(r"\\binom\s*\{\s*\d{5,}|\d{5,}\s*\\choose")


class RefusedError(Exception):
    """The answer is refused; the message says why."""


def refuse_shape(gold: str, answer: str) -> None:
    """Refuse what is dangerous to parse or to evaluate, unless the gold has it too."""
    depth = deepest = 0
    for character in answer:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING or len(re.findall(r"\\(?:frac|sqrt|binom)", answer)) > 30:
        raise RefusedError("too deeply nested")
    if len(re.findall(r"\\(?:cup|cap|setminus)", answer)) > 20:
        raise RefusedError("too many sets")
    if re.search(r"\d\s*'", answer) and "'" not in gold:
        raise RefusedError("a prime after a number")
    if re.search(r"\d\s*\)?\s*_", answer) and not re.search(r"\d\s*\)?\s*_", gold):
        raise RefusedError("a subscript on a number")  # latex2sympy ignores it
    if HIDDEN.search(answer):
        raise RefusedError("hidden or struck out text")
    for pattern in (LONG_EXPONENT, TOWER, BIG_FACTORIAL, BIG_BINOMIAL):
        if pattern.search(answer) and not pattern.search(gold):
            raise RefusedError("too large to evaluate")
    if len(re.findall(r"\d{40,}", answer)) and not re.search(r"\d{30,}", gold):
        raise RefusedError("too large to evaluate")


def refuse_restatement(gold: str, answer: str) -> None:
    """Refuse an operation that is not carried out, unless the gold has it too."""
    for is_left in (divides_fractions, has_improper_part):
        if is_left(answer) and not is_left(gold):
            raise RefusedError("restates the problem: arithmetic")
    for name, pattern in OPERATIONS.items():
        if pattern.search(answer) and not pattern.search(gold):
            implied = IMPLIED.get(name)
            if name == "trigonometry" and "\\pi" in gold and ANGLE.fullmatch(answer):
                continue
            if not (implied and implied.search(gold)):
                raise RefusedError(f"restates the problem: {name}")


def divides_fractions(text: str) -> bool:
    """Whether plain numbers are divided twice, as in `48/2/3`: latex2sympy evaluates that while it parses."""
    return bool(FRACTION_OF_FRACTIONS.search(SIMPLE_FRACTION.sub("Q", text.replace("Q", "q"))))


def has_improper_part(text: str) -> bool:
    r"""Whether a mixed number has a fraction of 1 or more, `41\frac{2}{2}`: latex2sympy adds it up."""
    return any(int(above) >= int(below) for above, below in MIXED.findall(text))


def refuse_zeros(gold: str, answer: str) -> None:
    """Refuse an added zero or a real part that is a sum (`1 + 2 + i`), which latex2sympy may drop unseen."""
    if IMAGINARY.search(gold):
        if IMAGINARY_PART.fullmatch(answer.strip()):
            return
        terms = [term.strip() for term in split_top_level(answer, re.compile(r"[-+]"))]
        if sum(bool(re.fullmatch(r"[\d.]+", term)) for term in terms) > 1:
            raise RefusedError("restates the problem: arithmetic")
    if ADDED_ZERO.search(answer) and not ADDED_ZERO.search(gold):
        raise RefusedError("restates the problem: arithmetic")


def refuse_symbols(gold: sympy.Basic, answer: sympy.Basic) -> None:
    """Refuse variables that the gold does not have: `42 + x - x` is not an answer to what a number is."""
    if isinstance(gold, sympy.Expr) and getattr(answer, "free_symbols", set()) - gold.free_symbols:
        raise RefusedError("holds a variable")


def refuse_undone(gold: sympy.Basic | sympy.MatrixBase, answer: sympy.Basic | sympy.MatrixBase) -> None:
    """Refuse an answer that leaves operations to the grader, unless the gold does: `40 + 2` for 42."""
    if is_undone(answer, _keeps_closed_forms(gold)) and not is_undone(gold):
        raise RefusedError("restates the problem: arithmetic")


def _keeps_closed_forms(gold: sympy.Basic | sympy.MatrixBase) -> bool:
    """Whether the gold has factorials or binomials, or a sum that keeps a large power, as in `1 - (5/6)^{10}`."""
    sums = (part for part in sympy.preorder_traversal(gold) if isinstance(part, sympy.Add))
    return gold.has(*COMPUTED) or any(
        {"a power"} == _kinds(term) for total in sums for term in _flat(total, sympy.Add)
    )


def is_undone(expression: sympy.Basic | sympy.MatrixBase, may_keep_powers: bool = False) -> bool:
    r"""
    Whether an expression holds an operation that is still to be carried out. `may_keep_powers`: large powers may stay
    beside each other, and factorials over each other.

    These are sums of like terms (`40 + 2`, `10\pi + 6\pi`, `\ln 6 - \ln 3`), products of several numbers, of sums
    without variables (`(\sqrt 2 + 1)(\sqrt 2 - 1)`) and of complex numbers, and sets that overlap. Powers, roots,
    factorials and binomials by themselves are closed forms.
    """
    under_roots = set()  # \\sqrt{16 \\cdot 7} is a way to write 4\\sqrt 7
    for part in sympy.preorder_traversal(expression):
        if isinstance(part, sympy.Pow) and _is_root(part):
            under_roots.add(part.args[0])
        if isinstance(part, sympy.Pow) and _is_power_to_compute(part):
            return True
        if isinstance(part, sympy.Add) and _has_like_terms(part, may_keep_powers):
            return True
        if isinstance(part, sympy.Pow) and part.args[0].has(sympy.I, I_SYMBOL) and part.args[1].is_Integer:
            if part.args[1] > 1 and not part.free_symbols - {I_SYMBOL}:  # i^{2022}, (1 + i)^{10}
                return True
        if isinstance(part, sympy.Mul) and part not in under_roots:
            if _is_product_to_compute(part) or (_cancels(part) and not may_keep_powers):
                return True
        if isinstance(part, sympy.Set) and _is_set_to_compute(part):
            return True
    return False


def _is_root(power: sympy.Pow) -> bool:
    """Whether a power is a root with an irrational value."""
    exponent = power.args[1]
    return bool(exponent.is_Rational and not exponent.is_Integer and not power.doit().is_Rational)


def _is_power_to_compute(power: sympy.Pow) -> bool:
    r"""A root of a sum of numbers, `\sqrt{40^2 + 9^2}`, a power of `6/2`, and one to a root, `7^{\sqrt 4}`."""
    base, exponent = power.args
    if isinstance(base, sympy.Add) and exponent.is_Rational and not exponent.is_Integer:
        return not base.free_symbols and all(term.doit().is_Rational for term in _flat(base, sympy.Add))
    if exponent.is_Integer and exponent > 1 and isinstance(base, sympy.Mul):
        sides = list(_sides_of_fraction(base))
        if [is_above for _, is_above in sides] == [True, False] and _have_common_factor(sides[0][0], sides[1][0]):
            return True
    return any(
        isinstance(part, sympy.Pow) and not part.args[1].is_Integer for part in exponent.atoms(sympy.Pow)
    ) and bool(exponent.doit().is_Rational)


def _have_common_factor(first: sympy.Number, second: sympy.Number) -> bool:
    return bool(first.is_Integer and second.is_Integer and math.gcd(int(first), int(second)) > 1)


def _has_like_terms(total: sympy.Add, may_keep_powers: bool) -> bool:
    found: set[object] = set()
    for term in _flat(total, sympy.Add):
        kinds = _kinds(term)
        if may_keep_powers and kinds == {"a power"}:
            kinds = {str(term)}
        if kinds & found:
            return True
        found |= kinds
    return False


def _kinds(term: sympy.Basic) -> set[object]:
    """What a term of a sum is a multiple of: terms with a common entry can be added up."""
    factors = _flat(term, sympy.Mul)
    rest = [factor for factor in factors if not _is_plain(factor)]
    if term.free_symbols or not rest:
        return {tuple(sorted(map(str, rest)))}
    if isinstance(rest[0], sympy.log) and len(rest) == 1 and (number := rest[0].args[0].doit()).is_Rational:
        if 0 < max(abs(number.p), number.q) < MAX_FACTORED:
            return {f"ln {prime}" for part in (abs(number.p), number.q) for prime in sympy.factorint(part)}
    try:
        value = term.doit()
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return {str(term)}
    if value.is_Rational and max(abs(value.p), value.q) >= MIN_CLOSED and _has_closed_form(term):
        return {"a power"}
    return {tuple(sorted(str(factor) for factor in _flat(value, sympy.Mul) if not _is_plain(factor)))}


def _has_closed_form(term: sympy.Basic) -> bool:
    """Whether a number is written as a power, a factorial or a binomial. Squares and cubes count if they are huge."""
    powers = [(base, abs(n)) for base, n in (power.args for power in term.atoms(sympy.Pow)) if n.is_Integer]
    rational = [(base, n) for base, n in powers if base.doit().is_Rational and n > 1]
    large = [n > 3 or base == 10 or max(abs(base.doit().p), base.doit().q) ** n >= MIN_SQUARE for base, n in rational]
    return term.has(*COMPUTED) or any(large)


def _is_product_to_compute(product: sympy.Mul) -> bool:
    # -1 is only the sign, 2.8 * 10^1 is one number
    if sum(_is_plain(factor) and factor != -1 and factor.args[:1] != (10,) for factor in product.args) > 1:
        return True
    factors = _flat(product, sympy.Mul)
    numbers = list(_sides_of_fraction(product))
    above = [number for number, is_above in numbers if is_above]
    if len(above) > 1 or len(numbers) - len(above) > 1:  # (2 * 3)/7, and (3/4)/(5/6)
        return True
    if above and any(abs(above[0] * power) < MIN_CLOSED for power in _small_powers(factors)):  # \frac43 \pi 3^3
        return True
    sides = list(_sides(product))
    if sum(bool(factor.is_Number and factor < 0) for factor, _ in sides) > 1:  # (-42)(-1)
        return True
    roots = [factor if is_above else 1 / factor for factor, is_above in sides if _is_root_of_number(factor)]
    if len(roots) > 1 and sympy.Mul(*(root.doit() for root in roots)).is_Rational:  # \sqrt 8 \sqrt{50}
        return True
    if sum(factor.is_Add and not factor.free_symbols - {I_SYMBOL} for factor in factors) > 1:
        return True
    imaginary = [factor for factor in factors if factor.has(sympy.I, I_SYMBOL)]
    return len(imaginary) > 1 and any(factor.has(sympy.Add) for factor in imaginary)


def _sides(product: sympy.Basic, above: bool = True) -> Iterator[tuple[sympy.Basic, bool]]:
    """All factors of a product or quotient, and whether each is in the numerator."""
    if product.is_Mul:
        for part in product.args:
            yield from _sides(part, above)
    elif product.is_Pow and product.args[1].is_Integer and product.args[1] < 0:
        base, exponent = product.args
        yield from _sides(base if exponent == -1 else sympy.Pow(base, -exponent, evaluate=False), not above)
    else:
        yield product, above


def _cancels(product: sympy.Mul) -> bool:
    r"""
    Whether a quotient of numbers can be reduced by more than a common factor of two that are written out: `\pi` over
    `\pi`, `4^3` over `2^3`, `7!` over `6!`, 126 over `\sqrt 9`.
    """
    sides = [
        (factor, is_above) for factor, is_above in _sides(product) if abs(factor) != 1 and factor.args[:1] != (10,)
    ]
    above, below = ([factor for factor, is_above in sides if is_above is wanted] for wanted in (True, False))
    constants = [{factor.args[0] if factor.is_Pow else factor for factor in side} for side in (above, below)]
    if constants[0] & constants[1] & {sympy.pi, sympy.E}:
        return True
    written = [factor for factor in (*above, *below) if _is_number_to_compute(factor)]
    numbers = [[int(abs(f.doit())) for f in side if f in written or f.is_Integer] for side in (above, below)]
    if not written or math.prod(numbers[0]) >= MIN_CLOSED * math.prod(numbers[1]):
        return False
    several = len(numbers[0]) > 1 and any(factor.has(*COMPUTED) for factor in written)  # 42 * 0!, but not 2^3 * 3^2
    return several or any(math.gcd(one, other) > 1 for one in numbers[0] for other in numbers[1])


def _is_number_to_compute(factor: sympy.Basic) -> bool:
    """Whether it is a power, a root, a factorial or the like whose value is an integer."""
    return not (factor.is_Integer or factor.free_symbols or factor.is_Add) and bool(factor.doit().is_Integer)


def _is_root_of_number(factor: sympy.Basic) -> bool:
    return bool(factor.is_Pow and factor.args[0].is_Rational and _is_root(factor))


def _small_powers(factors: list[sympy.Basic]) -> Iterator[sympy.Rational]:
    """The values of powers like 3^3, but of 10^3: 6 * 10^3 is one number."""
    for factor in factors:
        if factor.is_Pow and factor.args[0].is_Rational and factor.args[1].is_Integer:
            base, exponent = factor.args
            if base != 10 and 1 < exponent < math.log2(MIN_CLOSED):
                yield base**exponent


def _sides_of_fraction(product: sympy.Basic) -> Iterator[tuple[sympy.Number, bool]]:
    """The numbers of a product, but 1 and -1, and whether each is in the numerator."""
    for factor, above in _sides(product):
        if factor.is_Rational:
            if abs(factor.p) != 1:
                yield sympy.Integer(factor.p), above
            if factor.q != 1:
                yield sympy.Integer(factor.q), not above
        elif factor.is_Float:
            yield factor, above
        elif factor.is_Pow and not factor.args[1].is_Integer and _is_plain(factor):
            yield factor.doit(), above


def _is_set_to_compute(expression: sympy.Set) -> bool:
    if isinstance(expression, sympy.Complement):  # may stay: an interval minus points, the reals minus a set
        whole, removed = expression.args
        return isinstance(whole, sympy.FiniteSet) or not (
            isinstance(removed, sympy.FiniteSet) or whole is sympy.S.Reals
        )
    if isinstance(expression, sympy.Union):
        written = _flat(expression, sympy.Union)
        found = _flat(expression.doit(), sympy.Union)
        points = [[one for one in sets if isinstance(one, sympy.FiniteSet)] for sets in (written, found)]
        several = [len(sets) - len(finite) for sets, finite in zip((written, found), points, strict=True)]
        lengths = [sum(map(len, finite)) for finite in points]
        return several[0] != several[1] or lengths[0] != lengths[1] or (several[0] == 0 and len(written) > 1)
    return isinstance(expression, sympy.Intersection)


def _flat(expression: sympy.Basic, kind: type[sympy.Basic]) -> list[sympy.Basic]:
    """The operands of a sum, product or union, including nested ones."""
    if not isinstance(expression, kind):
        return [expression]
    return [operand for argument in expression.args for operand in _flat(argument, kind)]


def _is_plain(factor: sympy.Basic) -> bool:
    """Whether it is a number that is written out; `40^1` and `15\\%` are."""
    if isinstance(factor, sympy.UnevaluatedExpr) or (factor.is_Pow and factor.args[1] in (0, 1)):
        return factor.args[0].is_Number
    if factor.is_Pow and factor.args[1] == -1:
        return factor.args[0].is_Number and not factor.args[0].is_Integer
    if factor.is_Pow and all(part.is_Rational for part in factor.args) and not factor.args[1].is_Integer:
        return bool(factor.doit().is_Rational)  # \sqrt 4
    return factor.is_Number


def refuse_large(expression: sympy.Basic) -> None:
    """Refuse an expression with a value of more than `MAX_DIGITS` digits somewhere inside."""
    if isinstance(expression, sympy.Basic) and _log10(expression) > MAX_DIGITS:
        raise RefusedError("too large to evaluate")


def _log10(expression: sympy.Basic) -> float:
    """An upper bound of log10 of the absolute value, or of the digits needed. Symbols count as one digit."""
    if isinstance(expression, sympy.Integer):
        return 0.302 * int(expression).bit_length()
    if isinstance(expression, sympy.Rational):
        return 0.302 * max(int(expression.p).bit_length(), int(expression.q).bit_length())
    inner = [_log10(argument) for argument in expression.args if isinstance(argument, sympy.Basic)]
    largest = max(inner, default=1.0)
    if largest > MAX_DIGITS:
        return largest
    if isinstance(expression, sympy.Pow):
        base, exponent = expression.args
        if exponent.free_symbols or (base.free_symbols and inner[1] < 3):
            return largest
        return max(inner[0], 0.31) * 10.0 ** min(inner[1], 12)
    if isinstance(expression, (sympy.factorial, sympy.gamma)):
        return 10.0 ** min(inner[0], 12) * max(inner[0], 1.0)
    if isinstance(expression, sympy.binomial):
        return 10.0 ** min(inner[0], 12) * 0.302
    if isinstance(expression, (sympy.Mul, sympy.Add)):
        return sum(inner)
    return largest
