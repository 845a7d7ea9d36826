r"""Golds with equivalent answers and with answers that are nearly right, drawn from a grammar."""

import math
import random
from collections.abc import Callable
from fractions import Fraction


Case = tuple[str, list[str], list[str]]  # gold, right answers, wrong answers


def integer(rng: random.Random) -> Case:
    n = rng.choice((-1, 1)) * rng.randrange(2, 10 ** rng.randrange(1, 13))
    right = [f"{n}", f"{n}.0", f"x = {n}", rf"\text{{{n}}}", rf"\mathbf{{{n}}}"]
    if abs(n) > 999:
        right += [f"{n:,}", f"{n:,}".replace(",", "{,}"), f"{n:,}".replace(",", r"\,")]
    wrong = [f"{n + 1}", f"{-n}", f"{n * 10}", f"{n}.5", f"{n}x", f"{n}i", f"{n}.0000001", f"{n - 1} + 1"]
    wrong += [rf"\pm {n}", f"{n}, {n + 1}", rf"{n} \text{{ or }} {n + 1}", f"{n + 1} = {n}", f"x > {n - 1}"]
    return f"{n}", right, wrong


def fraction(rng: random.Random) -> Case:
    value = Fraction(rng.choice((-1, 1)) * rng.randrange(1, 200), rng.randrange(2, 100))
    if value.denominator == 1:
        return fraction(rng)
    p, q, k = value.numerator, value.denominator, rng.randrange(2, 9)
    sign, top = "-" if p < 0 else "", abs(p)
    right = [rf"{sign}\frac{{{top}}}{{{q}}}", rf"\frac{{{p}}}{{{q}}}", rf"{sign}\dfrac{{{top}}}{{{q}}}", f"{p}/{q}"]
    right += [rf"\frac{{{p * k}}}{{{q * k}}}", rf"x = \tfrac{{{p}}}{{{q}}}"]
    if top > q:
        right.append(rf"{sign}{top // q}\frac{{{top % q}}}{{{q}}}")
    wrong = [rf"\frac{{{p + q}}}{{{q}}}", rf"\frac{{{p}}}{{{q + 1}}}", rf"\frac{{{-p}}}{{{q}}}", f"{p}{q}"]
    if is_decimal(q):
        right += [decimal_text(value), decimal_text(value) + "0"]
    else:
        wrong.append(f"{float(value):.6f}")
    return rf"{sign}\frac{{{top}}}{{{q}}}", right, wrong


def is_decimal(denominator: int) -> bool:
    return (10**9) % denominator == 0  # of those below 200


def decimal_text(value: Fraction) -> str:
    return f"{float(value):.9f}".rstrip("0").removesuffix(".")


def decimal(rng: random.Random) -> Case:
    value = Fraction(10 * rng.randrange(1, 10**4) + rng.randrange(1, 10), 10 ** rng.randrange(1, 4))
    text = decimal_text(value)
    right = [text, text + "0", rf"\frac{{{value.numerator}}}{{{value.denominator}}}", f"x={text}"]
    wrong = [text[:-1] + str((int(text[-1]) + 1) % 10), "-" + text, text.replace(".", ""), text + "1"]
    return text, right, wrong


def radical(rng: random.Random) -> Case:
    a, b = rng.randrange(2, 30), rng.choice([2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17, 19, 21, 22, 23])
    right = [rf"{a}\sqrt{{{b}}}", rf"{a} \sqrt {b}", rf"\sqrt{{{a * a * b}}}", rf"{a}\cdot\sqrt{{{b}}}"]
    right += [rf"\frac{{{a * b}}}{{\sqrt{{{b}}}}}", rf"\sqrt{{{b}}}\cdot {a}"]
    wrong = [rf"{a + 1}\sqrt{{{b}}}", rf"{a}\sqrt[3]{{{b}}}", rf"{a}\sqrt{{{b + 1}}}", rf"-{a}\sqrt{{{b}}}"]
    wrong += [rf"{a}+\sqrt{{{b}}}", f"{a * math.sqrt(b):.6f}", rf"\pm {a}\sqrt{{{b}}}", rf"\sqrt{{{a * b}}}"]
    return rf"{a}\sqrt{{{b}}}", right, wrong


def polynomial(rng: random.Random) -> Case:
    x = rng.choice("xnt")
    p, q = rng.sample([k for k in range(-9, 10) if k], 2)
    b, c = -p - q, p * q

    def written(b: int, c: int) -> str:
        return f"{x}^2" + (f"{b:+}{x}" if b else "") + f"{c:+}"

    def factors(p: int, q: int) -> str:
        return f"({x}{-p:+})({x}{-q:+})"

    gold = written(b, c)
    right = [gold, factors(p, q), factors(q, p), f"f({x}) = {gold}", gold.replace("^2", "^{2}")]
    wrong = [written(b + 1, c), written(b, c + 1), written(b, -c), gold.replace(x, "y"), f"{gold} = 0"]
    return gold, right, [*wrong, factors(p, q + 11)]


def point(rng: random.Random) -> Case:
    a, b, c = rng.sample(range(-20, 21), 3)
    gold = f"({a}, {b}, {c})"
    right = [gold, f"({a},{b},{c})", rf"\left({a}, {b}, {c}\right)", f"(x,y,z) = ({a},{b},{c})", f"({a}.0,{b},{c})"]
    wrong = [f"({b},{a},{c})", f"({a},{b})", f"({a},{b},{c + 1})", f"({a},{b},{c},{c})", f"({-a - 1},{b},{c})"]
    return gold, right, wrong


def numbers(rng: random.Random) -> Case:
    a, b, c = rng.sample(range(-20, 21), 3)
    gold = rng.choice([rf"\{{{a}, {b}, {c}\}}", f"{a}, {b}, {c}"])
    right = [rf"\{{{c}, {a}, {b}\}}", f"{b}, {a}, {c}", rf"{a}, {b} \text{{ and }} {c}", f"x = {a}, x = {c}, x = {b}"]
    wrong = [f"{a}, {b}", f"{a}, {b}, {c + 41}", f"{a}, {b}, {c}, {c + 41}", f"{a}", rf"\{{{a}, {b}\}}"]
    return gold, right, wrong


def interval(rng: random.Random) -> Case:
    a = rng.randrange(-20, 20)
    b = a + rng.randrange(1, 20)
    left, right_end = rng.choice("(["), rng.choice(")]")
    low, high = "<" if left == "(" else r"\le ", "<" if right_end == ")" else r"\le "
    gold, other = f"{left}{a}, {b}{right_end}", {"(": "[", "[": "(", ")": "]", "]": ")"}
    right = [gold, f"{a}{low}x{high}{b}", rf"x \in {left}{a},{b}{right_end}", rf"\left{left}{a},{b}\right{right_end}"]
    wrong = [
        f"{other[left]}{a}, {b}{right_end}",
        f"{left}{a}, {b}{other[right_end]}",
        f"{left}{a}, {b + 1}{right_end}",
    ]
    return gold, right, [*wrong, f"{left}{a - 1}, {b}{right_end}", f"x{high}{b}", f"{left}{b}, {a}{right_end}"]


def percentage(rng: random.Random) -> Case:
    n = rng.randrange(2, 99)
    right = [rf"{n}\%", rf"{n} \%", rf"{n}\text{{ percent}}", rf"{n}.0\%"]
    return rf"{n}\%", right, [rf"{n + 1}\%", f"{n + 1}", rf"0.{n:02}\%", f"{n * 10}", rf"{n}.5\%", rf"-{n}\%"]


def unit(rng: random.Random) -> Case:
    n = rng.randrange(2, 500)
    right, wrong = rng.choice([("cm", "m"), ("m", "km"), ("kg", "g"), ("s", "hours"), ("km", "miles")])
    gold = rf"{n}\text{{ {right}}}"
    answers = [gold, rf"{n}\,\mathrm{{{right}}}", rf"x = {n}\text{{ {right}}}"]
    near = [rf"{n}\text{{ {wrong}}}", rf"{n + 1}\text{{ {right}}}", f"{n}.5", rf"\text{{{right}}}"]
    return gold, answers, near


def word(rng: random.Random) -> Case:
    yes, no = rng.sample(["Monday", "Alice", "Paris", "increasing", "convex", "red", "ellipse", "north"], 2)
    right = [yes, rf"\text{{{yes}}}", rf"\text{{{yes.lower()}}}", rf"\textbf{{{yes}}}"]
    return rf"\text{{{yes}}}", right, [no, rf"\text{{{yes} or {no}}}", rf"\text{{not {yes}}}", yes[::-1], "42"]


KINDS: list[Callable[[random.Random], Case]] = [integer, fraction, decimal, radical, polynomial, point, numbers]
KINDS += [interval, percentage, unit, word]
DRESS = ["%s", "%s", r"\displaystyle %s", " %s ", r"\,%s", "{%s}", r"%s\;", r"\quad %s"]
COMPLETIONS = [
    r"\boxed{%s}",
    r"So the answer is $\boxed{%s}$.",
    r"<think>Perhaps \boxed{1}?</think> Done: \boxed{%s}",
    "First \\boxed{17} looked right, but that is wrong. Therefore\n\\[\\boxed{%s}\\]",
    r"$\boxed{%s}$ is the result.",
]
PLAIN_COMPLETIONS = ["Answer: $%s$", "The answer is $%s$.", "Steps.\n#### %s", "<answer>%s</answer>"]

SOUP = (
    r"\frac \sqrt \int \sum \lim \left( \right) \boxed{ \begin{pmatrix} \end{pmatrix} \text{ \mathbb{R} \infty \pi ^ "
    r"_ { } ( ) [ ] , ; = < > + - * / ! ! 1 2 9 99999 10^{ x y i e \sin \arctan \log \binom \cdot \times \pm \cup "
    r"\setminus \to \approx | . .. ... \ldots % $ & \\ \mod \gcd \max \det \overline \circ \% ' ' 7^7 x^x \Gamma "
    r"\operatorname{zeros} \zeta \prod \lfloor \rceil \emptyset \le \ge \neq \not √ ² ∞ ‮"
).split(" ")


def dressed(answer: str, rng: random.Random) -> str:
    """A completion with an answer, whose spelling is changed but not its meaning."""
    plain = rng.random() < 0.25
    template = rng.choice(PLAIN_COMPLETIONS if plain else COMPLETIONS)
    return template.replace("%s", answer if plain else rng.choice(DRESS).replace("%s", answer))


def soup(rng: random.Random) -> str:
    """LaTeX tokens in random order: no answer is right, and the check must not hang."""
    tokens = rng.choices(SOUP, k=rng.choice((3, 8, 20, 60, 200)))
    if rng.random() < 0.2:
        tokens = rng.choices(SOUP, k=2) * rng.choice((10, 100, 400))
    return r"\boxed{" + rng.choice(("", " ")).join(tokens) + "}"


def draw(rng: random.Random) -> tuple[str, str, str, float | None]:
    """The kind, a gold, a completion, and the expected reward; None if any number will do."""
    kind = rng.choice(KINDS)
    gold, right, wrong = kind(rng)
    if rng.random() < 0.05:
        return "soup", gold, soup(rng), None
    good = rng.random() < 0.5
    return kind.__name__, gold, dressed(rng.choice(right if good else wrong), rng), float(good)
