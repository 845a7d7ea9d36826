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


def surd(rng: random.Random) -> Case:
    a, b, c = rng.randrange(1, 30), rng.randrange(2, 12), squarefree(rng)
    gold = rf"{a} + {b}\sqrt{{{c}}}"
    right = [
        gold,
        rf"{b}\sqrt{{{c}}} + {a}",
        rf"{a}+\sqrt{{{b * b * c}}}",
        rf"\frac{{{2 * a} + {2 * b}\sqrt{{{c}}}}}{{2}}",
        f"{a}+{b}√{c}",
    ]
    wrong = [
        rf"{a} - {b}\sqrt{{{c}}}",
        rf"{a} \pm {b}\sqrt{{{c}}}",
        rf"{b} + {a + 40}\sqrt{{{c}}}",
        rf"{a + 1} + {b}\sqrt{{{c}}}",
        f"{a + b * math.sqrt(c):.5f}",
    ]
    return gold, right, wrong


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


def ray(rng: random.Random) -> Case:
    a = rng.randrange(-30, 30)
    gold = rng.choice([f"x > {a}", rf"({a}, \infty)"])
    right = [f"x>{a}", f"{a}<x", rf"({a},\infty)", rf"x\in({a},+\infty)", rf"\left({a},\infty\right)", f"x > {a}.0"]
    wrong = [
        rf"x\ge{a}",
        f"x<{a}",
        rf"[{a},\infty)",
        f"x>{a + 1}",
        f"2x>{2 * a}",
        f"x-({a})>0",
        rf"(-\infty,{a})",
        rf"x\ne{a}",
    ]
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


def complex_number(rng: random.Random) -> Case:
    a, b = rng.sample([k for k in range(-20, 21) if k not in (-1, 0, 1)], 2)
    gold = f"{a}{b:+}i"
    right = [gold, f"{b}i{a:+}", f"{a} {'+' if b > 0 else '-'} {abs(b)}i", f"z = {gold}", rf"{a}{b:+}\cdot i"]
    wrong = [
        f"{a}{-b:+}i",
        f"{-a}{b:+}i",
        f"{b}{a:+}i" if a != b else f"{a}",
        f"{a}{b:+}",
        f"{a}",
        f"{a + 1}{b:+}i",
        f"{a - 1}{b:+}i+1",
    ]
    return gold, right, wrong


def imaginary(rng: random.Random) -> Case:
    b = rng.randrange(2, 50)
    return (
        f"{b}i",
        [f"{b}i", f"0+{b}i", f"{b}i+0", rf"{b}\cdot i", f"z={b}i"],
        [f"-{b}i", f"0-{b}i", f"{b}", f"0+{b}", f"1+{b}i-1", f"1+{b}i"],
    )


def angle(rng: random.Random) -> Case:
    value = Fraction(rng.randrange(1, 12), rng.choice([2, 3, 4, 5, 6, 8, 12]))
    p, q = value.numerator, value.denominator
    if q == 1:
        return angle(rng)
    front = "" if p == 1 else p
    gold = rf"\frac{{{front}\pi}}{{{q}}}"
    right = [
        gold,
        rf"\frac{{{p}}}{{{q}}}\pi",
        rf"{front}\pi/{q}",
        rf"\frac{{{2 * p}\pi}}{{{2 * q}}}",
        rf"\theta = {gold}",
        rf"\dfrac{{{p}\pi}}{{{q}}}",
    ]
    wrong = [
        rf"\frac{{{p + q}\pi}}{{{q}}}",
        f"{float(value) * math.pi:.5f}",
        rf"-{gold}",
        rf"\frac{{{p}}}{{{q}}}",
        rf"\frac{{{q}}}{{{p}\pi}}",
        rf"2{gold}",
    ]
    return gold, right, wrong


def logarithm(rng: random.Random) -> Case:
    n = rng.choice([2, 3, 5, 6, 7, 10, 11, 13, 15])
    right = [rf"\ln {n}", rf"\ln({n})", rf"\ln{{{n}}}", rf"\log_e {n}", rf"-\ln\frac{{1}}{{{n}}}", rf"x=\ln {n}"]
    wrong = [
        rf"\ln {n + 1}",
        rf"-\ln {n}",
        rf"\log_{{2}} {n * 3}",
        rf"e^{{{n}}}",
        f"{math.log(n):.5f}",
        rf"\ln\frac{{1}}{{{n}}}",
        f"{n}",
    ]
    return rf"\ln {n}", right, wrong


def line(rng: random.Random) -> Case:
    m, b = rng.randrange(2, 9), rng.choice([-7, -5, -3, 2, 4, 6])
    gold = f"y = {m}x{b:+}"
    right = [
        gold,
        f"{m}x{b:+}",
        f"y={b}+{m}x",
        f"y - {m}x = {b}",
        f"{m}x - y = {-b}",
        f"2y = {2 * m}x{2 * b:+}",
        f"{m}x{b:+} = y",
    ]
    wrong = [
        f"y = {m + 1}x{b:+}",
        f"y = {m}x{-b:+}",
        f"x = {m}y{b:+}",
        f"y = -{m}x{b:+}",
        f"y > {m}x{b:+}",
        f"{m}x{b:+} = 0",
    ]
    return gold, right, wrong


def matrix(rng: random.Random) -> Case:
    a, b, c, d = rng.sample(range(-9, 10), 4)

    def text(kind: str, *entries: object) -> str:
        return rf"\begin{{{kind}}}{entries[0]} & {entries[1]} \\ {entries[2]} & {entries[3]}\end{{{kind}}}"

    right = [text("pmatrix", a, b, c, d), text("bmatrix", a, b, c, d), "A = " + text("pmatrix", a, b, c, d)]
    wrong = [
        text("pmatrix", a, c, b, d),
        text("pmatrix", a + 1, b, c, d),
        text("pmatrix", a, b, c, -d - 1),
        f"{a * d - b * c + 101}",
        text("pmatrix", d, b, c, a),
    ]
    return text("pmatrix", a, b, c, d), right, wrong


def group(rng: random.Random) -> Case:
    n = rng.randrange(2, 60)
    right = [
        rf"\mathbb{{Z}}/{n}\mathbb{{Z}}",
        rf"\mathbb{{Z}}_{{{n}}}",
        rf"C_{{{n}}}",
        rf"\mathbb Z/{n}\mathbb Z",
        rf"G \cong \mathbb{{Z}}/{n}",
    ]
    wrong = [
        rf"\mathbb{{Z}}/{n + 1}\mathbb{{Z}}",
        r"\mathbb{Z}",
        f"{n}",
        rf"\mathbb{{Q}}/{n}\mathbb{{Q}}",
        rf"\mathbb{{Z}}/{n}\mathbb{{Z}} \times \mathbb{{Z}}/2\mathbb{{Z}}",
        f"1/{n}",
    ]
    return rf"\mathbb{{Z}}/{n}\mathbb{{Z}}", right, wrong


def word(rng: random.Random) -> Case:
    yes, no = rng.sample(["Monday", "Alice", "Paris", "increasing", "convex", "red", "ellipse", "north"], 2)
    right = [yes, rf"\text{{{yes}}}", rf"\text{{{yes.lower()}}}", f"{yes}.", rf"\textbf{{{yes}}}"]
    wrong = [no, rf"\text{{{yes} or {no}}}", rf"\text{{not {yes}}}", yes[::-1], f"{yes}?", "42"]
    return rf"\text{{{yes}}}", right, wrong


KINDS: list[Callable[[random.Random], Case]] = [
    integer, fraction, decimal, radical, surd, polynomial, point, numbers, interval, ray, percentage, unit, complex_number,
    imaginary, angle, logarithm, line, matrix, group, word,
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
