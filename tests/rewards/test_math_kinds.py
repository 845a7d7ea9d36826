# ruff: noqa: E501 (tables)
r"""What `math_reward` decides by principle, several examples of each kind."""

import pytest

from delta_trl.rewards import math_reward


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("x^2+50=0", ["x^2+50=0", "2x^2+100=0"], ["x^2+1=0", "x^2+50=1", "y^2+50=0"]),
        ("24", ["24", "24.0", "x=24", "12+12=24"], [r"48 \div 2", "48/2", r"\binom{24}{1}", "4!", "23=24"]),
        (r"\frac{3}{4}", ["0.75", "6/8", r"75\%"], [r"3 \div 4", "81^{3/4}", r"\frac{1}{2}+\frac{1}{4}"]),
        (r"2\sqrt{3}", [r"\sqrt{12}", r"2 \cdot \sqrt3"], [r"\sqrt{3}+\sqrt{3}+\sqrt{3}-\sqrt{3}", r"\int_0^2\sqrt3\,dx"]),
        ("6", [r"\gcd(12, 18)=6", r"\int_0^6 1\,dx = 6"], [r"\gcd(12, 18)", r"\int_0^6 1\,dx", r"\lim_{x\to6} x"]),
        (r"\{2,3\}", [r"\{3,2\}", r"A \cap B = \{2,3\}"], [r"\{1,2,3\}\setminus\{1\}", r"\{2,3,3\}"]),
        ("16,3,1", ["1,3,16"], ["16,3,1,1", "16,3"]),
        ("16,3,1,1", ["1,16,1,3"], ["16,3,1", "16,16,3,1"]),
        ("42", [r"42\%", "42 cm"], [r"42\text{ incorrectly}", r"42\text{ or } 43", "42?"]),
        (r"12\mathrm{~min}", [r"12\mathrm{~min}", "12", r"12\text{ minutes}", r"720\text{ s}"], [r"12\text{ hours}", "13"]),
        (r"5\ \mathrm{m/s^{2}}", ["5", r"5\text{ m/s}^2"], [r"5\text{ m/s}", "6"]),
        ("E_1, E_2", ["E_1, E_2", "E_2, E_1"], ["E_1, E_3", "E_1", "E, E"]),
        (r"\frac{v_{\text{max}}}{2}", [r"\frac{1}{2}v_{\text{max}}"], [r"\frac{v_{\text{min}}}{2}", r"\frac{v}{2}"]),
        ("m_e c^2", ["c^2 m_e"], ["m e c^2", "m_p c^2"]),
        ("C", [r"\mathbf{C}", r"\text{(C)}", "C. 42"], ["D", "B, C", "ABCD"]),
        ("p=5,q=2;p=7,q=2", ["(5,2),(7,2)", "p=7,q=2;p=5,q=2"], ["(2,5),(2,7)", "(5,2)"]),
        ("100/3", [r"33\frac{1}{3}", r"33.\overline{3}"], ["33.3", "33.33333333"]),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", [r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"], [r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"]),
        ("x>3", [r"(3,\infty)", "3<x"], [r"[3,\infty)", "x-3>0", "x>2"]),
        (r"\tan 10^\circ", [r"\tan\frac{\pi}{18}"], [r"\tan 10"]),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", [r"\vec{v}=\begin{bmatrix}1\\[2pt]2\end{bmatrix}", "(1,2)"], ["(2,1)", "1,2,3"]),
        ("42_7", ["42", "42_7"], ["42_8", "30"]),
        ("act", [r"\text{act}"], ["cat", r"\text{fact}"]),
        ("3:4:5", ["3:4:5"], ["3:5:4", "3:4"]),
    ],
)  # fmt: skip
def test_kinds(gold, right, wrong):
    answers = right + wrong
    scores = math_reward([rf"So it is $\boxed{{{answer}}}$." for answer in answers], [gold] * len(answers))
    assert dict(zip(answers, scores, strict=True)) == dict.fromkeys(right, 1.0) | dict.fromkeys(wrong, 0.0)


@pytest.mark.parametrize(
    ("completion", "right", "wrong"),
    [
        (r"So \boxed{-2}. Let us check the larger one: \boxed{5}", ["5"], ["-2", "-2, 5"]),
        (r"$\boxed{-2}$ and $\boxed{5}$", ["-2, 5"], ["5"]),
        (r"$\boxed{5}$, \boxed{5}", ["5"], ["5, 5"]),
        (r"$5 \cdot 504 = 2520$, or $\boxed{520}$.", ["520"], ["2520"]),
        ("He has 1,100 if X = 10\n#### 1100", ["1100"], ["10"]),
        ("The answer is 41. No: the answer is 42.\nDone.", ["42"], ["41"]),
        (r"<think>\boxed{1}</think> \boxed{2}", ["2"], ["1"]),
        (r"\boxed{1} <think> \boxed{1}", [], ["1"]),
        (r"\boxed{1} and then \boxed{1", [], ["1"]),
        ("It is 42.", [], ["42"]),
    ],
)
def test_one_completion_has_one_answer(completion, right, wrong):
    golds = [*right, *wrong]
    assert math_reward([completion] * len(golds), golds) == [1.0] * len(right) + [0.0] * len(wrong)


@pytest.mark.parametrize(
    ("gold", "answer", "prompt", "wanted"),
    [
        ("t^7", r"t^3\cdot t^4", r"Simplify $t^3\cdot t^4$.", 0.0),
        ("(x-1)(x+1)", "x^2-1", "Factor it.", 1.0),
        ("t^7", "t^7", r"Simplify $t^3\cdot t^4$.", 1.0),
        ("x^2-1", "x^2-1", "What is $x^2-1$?", 1.0),  # the gold's own text
        ("(x-1)(x+1)", "x^2-1", "Factor $x^2-1$.", 0.0),
        ("x^2-1", "(x-1)(x+1)", r"Expand \((x-1)(x+1)\).", 0.0),
        ("1/2", "0.5", "Write 0.5 as a fraction.", 1.0),  # a numeral
        ("2x", "x+x", "Let $f(x)=x+x$. What is $f$?", 0.0),
        ("(x+2)(x+5)", "x^2+7x+10", "Factor P(x) = x²+7x+10", 0.0),
        ("(x-1)(x+1)", "(-1+x^2)", "Factor $x^2-1$.", 0.0),  # turned round, in brackets
        ("(x-1)(x+1)", "y=x^2 - 1", "Factor $x^2-1$.", 0.0),
        ("y=2x+1", "2x+1=y", "Solve $y = 2x+1$ for $y$.", 1.0),  # the gold's own
        (r"\frac{1}{x}", r"\frac{x}{x^2}", r"Simplify $x / x^2$.", 0.0),  # another spelling
        ("x^3", r"x \cdot x^2", "Simplify $x^2 x$.", 0.0),
        ("x+1", "1+x", "Let $f(x)=x^2$. Find $f$.", 1.0),
        ("yes", "Yes", "Answer yes or no.", 1.0),
        ("B", "B. x^2+1", "Which one?\nA. x^2\nB. x^2+1", 1.0),
    ],
)
def test_a_formula_of_the_prompt_is_no_answer(gold, answer, prompt, wanted):
    for given in (prompt, [{"role": "user", "content": prompt}]):
        assert math_reward([rf"\boxed{{{answer}}}"], [gold], prompts=[given]) == [wanted]


@pytest.mark.parametrize(
    "gold",
    ["", "N/A", r"x \equiv 5 \pmod 7", r"\begin{cases} x & x>0 \\ 0 \end{cases}", r"AB \parallel CD", "a" * 1001],
)
def test_a_gold_that_cannot_be_used_is_none_and_counted(gold):
    metrics = {}
    scores = math_reward([r"\boxed{1}", "no answer", r"\boxed{1}"], [gold, gold, "1"], log_metric=metrics.__setitem__)
    assert scores == [None, None, 1.0]
    assert metrics["math_reward/unusable_gold"] == pytest.approx(2 / 3)
