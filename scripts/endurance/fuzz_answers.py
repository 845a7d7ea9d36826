# ruff: noqa: E501 (tables: one line each)
r"""Golds with equivalent answers and with answers that are nearly right, drawn from a grammar."""

import math
import random
from collections.abc import Callable
from fractions import Fraction


Case = tuple[str, list[str], list[str]]  # gold, right answers, wrong answers


def integer(rng: random.Random) -> Case:
    n = rng.choice((-1, 1)) * rng.randrange(2, 10 ** rng.randrange(1, 13))
    k = rng.randrange(2, 9)
    right = [
        f"{n}",
        f"{n}.0",
        f"x = {n}",
        rf"\text{{{n}}}",
        rf"\frac{{{n * k}}}{{{k}}}",
        rf"\mathbf{{{n}}}",
        f"{n} = x",
    ]
    right += [f"{n:,}", f"{n:,}".replace(",", "{,}"), f"{n:,}".replace(",", r"\,")] if abs(n) > 999 else []
    right += [f"+{n}", rf"{n} \text{{ apples}}"] if n > 0 else [rf"-{-n}", f"- {-n}"]
    wrong = [f"{n + 1}", f"{-n}", f"{n * 10}", f"{n}.5", f"{n}x", rf"{n} \text{{ or }} {n + 1}", f"{n - 1} + 1", f"{n}?",
             rf"\pm {n}", f"{n + 1} = {n}", rf"\int_0^{{{n}}} dx", f"x > {n - 1}", f"{n}, {n + 1}", rf"\neq {n}",
             rf"{n} \approx {n + 1}", f"{n}.0000001", rf"\text{{not }} {n}", f"{n}i", rf"\lfloor {n}.5 \rfloor", f"{n}_{{7}}"]  # fmt: skip
    return f"{n}", right, wrong


def fraction(rng: random.Random) -> Case:
    value = Fraction(rng.choice((-1, 1)) * rng.randrange(1, 200), rng.randrange(2, 100))
    if value.denominator == 1:
        return fraction(rng)
    p, q = value.numerator, value.denominator
    sign, top, k = "-" if p < 0 else "", abs(p), rng.randrange(2, 9)
    right = [rf"{sign}\frac{{{top}}}{{{q}}}", rf"\frac{{{p}}}{{{q}}}", rf"{sign}\dfrac{{{top}}}{{{q}}}", f"{p}/{q}",
             rf"\frac{{{p * k}}}{{{q * k}}}", rf"x = \tfrac{{{p}}}{{{q}}}", f"{p * k}/{q * k}"]  # fmt: skip
    if top > q:
        right.append(rf"{sign}{top // q}\frac{{{top % q}}}{{{q}}}")
    if is_decimal(q):
        right += [decimal_text(value), decimal_text(value) + "0"]
    wrong = [
        rf"\frac{{{p + q}}}{{{q}}}",
        rf"\frac{{{p}}}{{{q + 1}}}",
        rf"\frac{{{-p}}}{{{q}}}",
        f"{p}{q}",
        rf"\frac{{{p}}}{{{q}}}x",
    ]
    wrong += [rf"{sign}\frac{{{q}}}{{{top}}}"] if top != q else []
    wrong += [f"{float(value):.6f}"] if not is_decimal(q) else []
    return rf"{sign}\frac{{{top}}}{{{q}}}", right, wrong


def is_decimal(denominator: int) -> bool:
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def decimal_text(value: Fraction) -> str:
    digits = next(k for k in range(20) if (value * 10**k).denominator == 1)
    whole = str(abs(value.numerator * 10**digits // value.denominator)).rjust(digits + 1, "0")
    return ("-" if value < 0 else "") + (f"{whole[:-digits]}.{whole[-digits:]}" if digits else whole)


def decimal(rng: random.Random) -> Case:
    value = Fraction(rng.randrange(1, 10**5), 10 ** rng.randrange(1, 4))
    if value.denominator == 1:
        return decimal(rng)
    text = decimal_text(value)
    right = [
        text,
        text + "0",
        rf"\frac{{{value.numerator}}}{{{value.denominator}}}",
        f"x={text}",
        text.removeprefix("0") or text,
    ]
    wrong = [text[:-1] + str((int(text[-1]) + 1) % 10), "-" + text, text.replace(".", ""), text + "1"]
    return text, right, wrong


def squarefree(rng: random.Random) -> int:
    return rng.choice([2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17, 19, 21, 22, 23])


def radical(rng: random.Random) -> Case:
    a, b = rng.randrange(2, 30), squarefree(rng)
    right = [rf"{a}\sqrt{{{b}}}", rf"{a} \sqrt {b}", rf"\sqrt{{{a * a * b}}}", rf"{a}\cdot\sqrt{{{b}}}", rf"\frac{{{a * b}}}{{\sqrt{{{b}}}}}",
             rf"{a} \cdot {b}^{{1/2}}", rf"\sqrt{{{b}}}\cdot {a}", rf"{a}√{b}", f"{a}sqrt({b})"]  # fmt: skip
    wrong = [rf"{a + 1}\sqrt{{{b}}}", rf"{a}\sqrt[3]{{{b}}}", rf"{a}\sqrt{{{b + 1}}}", rf"-{a}\sqrt{{{b}}}", rf"{a}+\sqrt{{{b}}}",
             f"{a * math.sqrt(b):.6f}", rf"\pm {a}\sqrt{{{b}}}", rf"\sqrt{{{a * b}}}"]  # fmt: skip
    return rf"{a}\sqrt{{{b}}}", right, wrong


def polynomial(rng: random.Random) -> Case:
    x = rng.choice("xnt")
    p, q = rng.sample([k for k in range(-9, 10) if k], 2)

    def terms(b: int, c: int) -> list[str]:
        return [f"{x}^2", *([f"{b:+}{x}"] if b else []), f"{c:+}"]

    def factor(k: int) -> str:
        return f"({x}{-k:+})"

    b, c = -p - q, p * q
    gold = "".join(terms(b, c))
    shuffled = terms(b, c)
    rng.shuffle(shuffled)
    right = [
        _sum(shuffled),
        gold,
        factor(p) + factor(q),
        factor(q) + factor(p),
        f"f({x}) = {gold}",
        rf"{x}^{{2}}" + "".join(terms(b, c)[1:]),
    ]
    wrong = [
        "".join(terms(b + 1, c)),
        "".join(terms(b, c + 1)),
        "".join(terms(b, -c)),
        gold.replace(x, "y"),
        f"{gold} = 0",
        factor(p) + factor(q + 11),
        f"{gold}+0",
    ]
    return gold, right, wrong


def _sum(parts: list[str]) -> str:
    return "".join(part if part[0] in "+-" else "+" + part for part in parts).removeprefix("+")


def point(rng: random.Random) -> Case:
    a, b, c = rng.sample(range(-20, 21), 3)
    gold = f"({a}, {b}, {c})"
    right = [
        gold,
        f"({a},{b},{c})",
        rf"\left({a}, {b}, {c}\right)",
        f"(x,y,z) = ({a},{b},{c})",
        f"x={a}, y={b}, z={c}",
        f"({a}.0,{b},{c})",
    ]
    wrong = [
        f"({b},{a},{c})",
        f"({a},{b})",
        f"({a},{b},{c + 1})",
        f"({a},{b},{c},{c})",
        f"({-a - 1},{b},{c})",
        rf"({a},{b},{c}) \text{{ or }} ({b},{a},{c})",
    ]
    return gold, right, wrong


def numbers(rng: random.Random) -> Case:
    a, b, c = rng.sample(range(-20, 21), 3)
    gold = rng.choice([rf"\{{{a}, {b}, {c}\}}", f"{a}, {b}, {c}"])
    right = [
        rf"\{{{c}, {a}, {b}\}}",
        f"{b}, {a}, {c}",
        rf"{a}, {b} \text{{ and }} {c}",
        f"x = {a}, x = {c}, x = {b}",
        rf"\left\{{{a},{b},{c}\right\}}",
    ]
    wrong = [
        f"{a}, {b}",
        f"{a}, {b}, {c + 41}",
        f"{a}, {b}, {c}, {c + 41}",
        f"{a}",
        rf"\{{{a}, {b}\}}",
        f"{a}{b}{c}",
        f"(x-({a}))(x-({b}))(x-({c}))=0",
    ]
    return gold, right, wrong


def interval(rng: random.Random) -> Case:
    a = rng.randrange(-20, 20)
    b = a + rng.randrange(1, 20)
    left, right_end = rng.choice("(["), rng.choice(")]")
    low, high = r"<" if left == "(" else r"\le ", r"<" if right_end == ")" else r"\le "
    flipped = {"<": ">", r"\le ": r"\ge "}
    gold = f"{left}{a}, {b}{right_end}"
    other = {"(": "[", "[": "(", ")": "]", "]": ")"}
    right = [gold, f"{a}{low}x{high}{b}", rf"x \in {left}{a},{b}{right_end}", rf"\left{left}{a},{b}\right{right_end}",
             rf"x{flipped[low]}{a} \text{{ and }} x{high}{b}", rf"\{{x : {a}{low}x{high}{b}\}}"]  # fmt: skip
    strict = "<" if low == high == "<" else r"\le "
    wrong = [f"{other[left]}{a}, {b}{right_end}", f"{left}{a}, {b}{other[right_end]}", f"{left}{a}, {b + 1}{right_end}", f"{left}{a - 1}, {b}{right_end}",
             f"x{high}{b}", rf"(x-({a}))(x-({b})){strict}0", f"{2 * a}{low}2x{high}{2 * b}", f"{left}{b}, {a}{right_end}"]  # fmt: skip
    return gold, right, wrong


def percentage(rng: random.Random) -> Case:
    n = rng.randrange(2, 99)
    right = [rf"{n}\%", f"{n}", rf"{n} \%", rf"{n}\text{{ percent}}", decimal_text(Fraction(n, 100)), f"{n}.0" + r"\%"]
    wrong = [rf"{n + 1}\%", f"{n + 1}", rf"0.{n:02}\%", f"{n * 10}", rf"{n}.5\%", rf"-{n}\%"]
    return rf"{n}\%", right, wrong


def unit(rng: random.Random) -> Case:
    n = rng.randrange(2, 500)
    short, long, wrong_unit = rng.choice(
        [
            ("cm", "centimeters", "m"),
            ("m", "meters", "km"),
            ("kg", "kilograms", "g"),
            ("s", "seconds", "hours"),
            ("km", "km", "miles"),
        ]
    )
    gold = rf"{n}\text{{ {short}}}"
    right = [gold, f"{n}", rf"{n} \text{{ {long}}}", rf"{n}\,\mathrm{{{short}}}", rf"x = {n}\text{{ {short}}}"]
    wrong = [
        rf"{n}\text{{ {wrong_unit}}}",
        rf"{n + 1}\text{{ {short}}}",
        rf"{n}\text{{ {short}}}^2",
        f"{n}.5",
        rf"\text{{{short}}}",
    ]
    return gold, right, wrong


def word(rng: random.Random) -> Case:
    yes, no = rng.sample(["Monday", "Alice", "Paris", "increasing", "convex", "red", "ellipse", "north"], 2)
    right = [yes, rf"\text{{{yes}}}", rf"\text{{{yes.lower()}}}", f"{yes}.", rf"\textbf{{{yes}}}"]
    wrong = [no, rf"\text{{{yes} or {no}}}", rf"\text{{not {yes}}}", yes[::-1], f"{yes}?", "42"]
    return rf"\text{{{yes}}}", right, wrong


KINDS: list[Callable[[random.Random], Case]] = [
    integer, fraction, decimal, radical, polynomial, point, numbers, interval, percentage, unit, word,
]  # fmt: skip

DRESS = [
    lambda text: text, lambda text: text, lambda text: rf"\displaystyle {text}", lambda text: f" {text} ",
    lambda text: rf"\,{text}", lambda text: f"{{{text}}}", lambda text: rf"{text}\;", lambda text: rf"\quad {text}",
    lambda text: text.replace(r"\frac", r"\dfrac"), lambda text: text.replace("-", "−"),
]  # fmt: skip
COMPLETIONS = [
    r"\boxed{%s}", r"So the answer is $\boxed{%s}$.", r"<think>Perhaps \boxed{1}?</think> Done: \boxed{%s}",
    "First \\boxed{17} looked right, but that is wrong. Therefore\n\\[\\boxed{%s}\\]", r"$\boxed{%s}$ is the result.",
]  # fmt: skip
PLAIN_COMPLETIONS = [
    "Answer: $%s$",
    "The answer is $%s$.",
    "Steps.\n#### %s",
    "<answer>%s</answer>",
    "**Answer:** $%s$",
]

SOUP = (
    r"\frac \sqrt \int \sum \lim \left( \right) \boxed{ \begin{pmatrix} \end{pmatrix} \text{ \mathbb{R} \infty \pi ^ _ { } ( ) [ ] , ; = < > "
    r"+ - * / ! ! 1 2 9 99999 10^{ x y i e \sin \arctan \log \binom \cdot \times \pm \cup \setminus \to \approx | . .. ... \ldots % $ & \\ "
    r"\mod \gcd \max \det \overline \circ \% ' ' 7^7 x^x \operatorname{zeros} \Gamma \zeta \prod \lfloor \rceil \emptyset \le \ge \neq \not √ ² ∞ ‮"
).split(" ")


def dressed(answer: str, rng: random.Random) -> str:
    """A completion with an answer, whose spelling is changed but not its meaning."""
    plain = "\n" not in answer and rng.random() < 0.25
    template = rng.choice(PLAIN_COMPLETIONS if plain else COMPLETIONS)
    return template.replace("%s", answer if plain else rng.choice(DRESS)(answer))


def soup(rng: random.Random) -> str:
    """LaTeX tokens in random order: no answer is right, and the check must not hang."""
    tokens = rng.choices(SOUP, k=rng.choice((3, 8, 20, 60, 200)))
    if rng.random() < 0.2:
        tokens = rng.choices(SOUP, k=2) * rng.choice((10, 100, 400))
    return r"\boxed{" + rng.choice(("", " ")).join(tokens) + "}"


def draw(rng: random.Random) -> tuple[str, str, str, float | None]:
    """The kind, a gold, a completion, and the expected reward; None if any number will do."""
    if rng.random() < 0.05:
        return "soup", rng.choice(KINDS)(rng)[0], soup(rng), None
    kind = rng.choice(KINDS)
    gold, right, wrong = kind(rng)
    good = rng.random() < 0.5
    return kind.__name__, gold, dressed(rng.choice(right if good else wrong), rng), float(good)
