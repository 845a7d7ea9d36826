"""Golds with equivalent answers and with answers that are nearly right: values drawn for the texts of answers.yaml."""

import math
import random
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import yaml


Values = dict[str, int | str]
TEXTS = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text())
NAME = re.compile("<([^<>]+)>")

SQUARE_FREE = (2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17, 19, 21, 22, 23)
COEFFICIENTS = [k for k in range(-9, 10) if k]
OTHER_BRACKET = {"(": "[", "[": "(", ")": "]", "]": ")"}
COMPARISONS = {"(": "<", "[": r"\le ", ")": "<", "]": r"\le "}
UNITS = [("cm", "m"), ("m", "km"), ("kg", "g"), ("s", "hours"), ("km", "miles")]
WORDS = ["Monday", "Alice", "Paris", "increasing", "convex", "red", "ellipse", "north"]


# --- kinds ----------------------------------------------------------------------------------------------------------


def integer(rng: random.Random) -> Values:
    sign = rng.choice((-1, 1))
    n = sign * rng.randrange(2, 10 ** rng.randrange(1, 13))
    values = {"n": n}
    if abs(n) > 999:
        grouped = f"{n:,}"
        values["with commas"] = grouped
        values["with commas in braces"] = grouped.replace(",", "{,}")
        values["with thin spaces"] = grouped.replace(",", r"\,")
    return values


def fraction(rng: random.Random) -> Values:
    sign = rng.choice((-1, 1))
    numerator = sign * rng.randrange(1, 200)
    value = Fraction(numerator, rng.randrange(2, 100))
    p, q = value.as_integer_ratio()
    if q == 1:
        return fraction(rng)
    k = rng.randrange(2, 9)
    top = abs(p)
    values = {
        "p": p,
        "q": q,
        "p times k": p * k,
        "q times k": q * k,
        "p plus q": p + q,
        "top": top,
        "sign": "-" if p < 0 else "",
    }
    if top > q:
        values["whole"] = top // q
        values["rest"] = top % q
    if 10**9 % q == 0:
        values["decimal"] = decimal_text(value)
    else:
        values["rounded"] = f"{float(value):.6f}"
    return values


def decimal_text(value: Fraction) -> str:
    return f"{float(value):.9f}".rstrip("0").removesuffix(".")


def decimal(rng: random.Random) -> Values:
    digits = 10 * rng.randrange(1, 10**4)
    digits += rng.randrange(1, 10)  # the last one is no 0
    value = Fraction(digits, 10 ** rng.randrange(1, 4))
    text = decimal_text(value)
    last = int(text[-1])
    return {
        "p": value.numerator,
        "q": value.denominator,
        "decimal": text,
        "with another last digit": f"{text[:-1]}{(last + 1) % 10}",
        "without point": text.replace(".", ""),
    }


def radical(rng: random.Random) -> Values:
    a = rng.randrange(2, 30)
    b = rng.choice(SQUARE_FREE)
    return {
        "a": a,
        "b": b,
        "a times b": a * b,
        "a times a times b": a * a * b,
        "rounded": f"{a * math.sqrt(b):.6f}",
    }


def polynomial(rng: random.Random) -> Values:
    x = rng.choice("xnt")
    p, q = rng.sample(COEFFICIENTS, 2)
    b = -p - q
    c = p * q

    def written(b: int, c: int) -> str:
        linear = f"{b:+}{x}" if b else ""
        return f"{x}^2{linear}{c:+}"

    def factors(p: int, q: int) -> str:
        return f"({x}{-p:+})({x}{-q:+})"

    text = written(b, c)
    return {
        "x": x,
        "polynomial": text,
        "polynomial with braces": text.replace("^2", "^{2}"),
        "factors": factors(p, q),
        "factors in the other order": factors(q, p),
        "other factors": factors(p, q + 11),
        "another linear term": written(b + 1, c),
        "another constant": written(b, c + 1),
        "constant with the other sign": written(b, -c),
        "of y": text.replace(x, "y"),
    }


def point(rng: random.Random) -> Values:
    a, b, c = rng.sample(range(-20, 21), 3)
    return {"a": a, "b": b, "c": c, "another": -a - 1}


def numbers(rng: random.Random) -> Values:
    a, b, c = rng.sample(range(-20, 21), 3)
    return {"a": a, "b": b, "c": c, "another": c + 41}


def interval(rng: random.Random) -> Values:
    a = rng.randrange(-20, 20)
    b = a + rng.randrange(1, 20)
    left = rng.choice("([")
    right = rng.choice(")]")
    return {
        "a": a,
        "b": b,
        "left": left,
        "right": right,
        "other left": OTHER_BRACKET[left],
        "other right": OTHER_BRACKET[right],
        "above": COMPARISONS[left],
        "below": COMPARISONS[right],
    }


def percentage(rng: random.Random) -> Values:
    n = rng.randrange(2, 99)
    return {"n": n, "two digits": f"{n:02}"}


def unit(rng: random.Random) -> Values:
    n = rng.randrange(2, 500)
    right, wrong = rng.choice(UNITS)
    return {"n": n, "unit": right, "other": wrong}


def word(rng: random.Random) -> Values:
    right, wrong = rng.sample(WORDS, 2)
    return {"word": right, "other": wrong, "in lower case": right.lower(), "reversed": right[::-1]}


KINDS: list[Callable[[random.Random], Values]] = [
    integer,
    fraction,
    decimal,
    radical,
    polynomial,
    point,
    numbers,
    interval,
    percentage,
    unit,
    word,
]


def filled(texts: list[str], values: Values) -> list[str]:
    """Texts with their values; those with values that were not drawn are left out."""
    possible = [text for text in texts if values.keys() >= set(NAME.findall(text))]
    return [NAME.sub(lambda name: str(values[name[1]]), text) for text in possible]


def make_case(kind: Callable[[random.Random], Values], rng: random.Random) -> tuple[list[str], list[str], list[str]]:
    """Golds that mean the same, right answers, wrong answers."""
    values = kind(rng)
    for name, value in list(values.items()):
        if isinstance(value, int):
            values[f"{name}+1"] = value + 1
            values[f"{name}-1"] = value - 1
            values[f"-{name}"] = -value
    texts = TEXTS[kind.__name__]
    golds = filled(texts["gold"], values)
    right = filled(texts["right"], values)
    wrong = filled(texts["wrong"], values)
    return golds, right, wrong


# --- completions ----------------------------------------------------------------------------------------------------

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
    if rng.random() < 0.25:
        template = rng.choice(PLAIN_COMPLETIONS)
    else:
        template = rng.choice(COMPLETIONS)
        answer = rng.choice(DRESS).replace("%s", answer)
    return template.replace("%s", answer)


def soup(rng: random.Random) -> str:
    """LaTeX tokens in random order: no answer is right, and the check must not hang."""
    count = rng.choice((3, 8, 20, 60, 200))
    tokens = rng.choices(SOUP, k=count)
    if rng.random() < 0.2:
        two = rng.choices(SOUP, k=2)
        tokens = two * rng.choice((10, 100, 400))
    separator = rng.choice(("", " "))
    text = separator.join(tokens)
    return rf"\boxed{{{text}}}"


def draw(rng: random.Random) -> tuple[str, str, str, float | None]:
    """The kind, a gold, a completion, and the expected reward; None if any number will do."""
    kind = rng.choice(KINDS)
    golds, right, wrong = make_case(kind, rng)
    gold = rng.choice(golds)
    if rng.random() < 0.05:
        return "soup", gold, soup(rng), None
    good = rng.random() < 0.5
    answer = rng.choice(right if good else wrong)
    return kind.__name__, gold, dressed(answer, rng), float(good)
