"""The HTML of groups and numbers, against the rows that were recorded. `test_page.py` looks at it in a browser."""

import re
from html import unescape

import numpy as np
import pytest

from delta_trl.report import read_run, write_report
from delta_trl.report.completions import COMPLETION_SIZE, TOKEN_SIZE, shown_groups
from delta_trl.report.heatmap import describe, shade
from delta_trl.report.page import TABLE_ROWS
from delta_trl.report.token_log.records import FOLDER

from . import runs
from .test_run import write_trl


SPREADS = (0.4, 0.2)  # from 1, and from the mean of the side


def shown(path, rows, budget=10**6):
    runs.write_completions(path, rows)
    return shown_groups(read_run(path), "run", None, budget, SPREADS)


def facts(html):
    return [re.findall(r"<span>(.*?)</span>", text) for text in re.findall(r"<article><p>(.*?)</p>", html)]


def test_a_completion_with_its_numbers(tmp_path):
    won = {"coefficients": [1.4, 0.8], "log_probs": [-0.5, -0.01], "entropies": [0.7, 0.1]}
    rows = [
        runs.completion(["a", "<b>"], **won, rewards=[("good", 0.5), ("short", None)], reward=0.5),
        runs.completion(["c"], advantage=-1.0, reward=0.0, coefficients=[0.9]),
        runs.completion(["d"], advantage=-1.0, reward=None, coefficients=[None]),
        runs.completion(["e"], advantage=0.0, coefficients=[1.0]),
    ]
    ((group,), notes) = shown(tmp_path, rows)
    assert (group.title, group.has_contrast, notes) == ("step 0 · 1 winners, 2 losers · a prompt", True, [])
    assert re.findall("<h3>(.*?)</h3>", group.html) == ["Winners (1)", "Losers (2)", "At the mean"]
    assert facts(group.html) == [
        ["reward 0.5", "good 0.5", "short not scored", "advantage 1.00", "2 tokens", "mean coefficient 1.100",
         "mean of its side 1.100"],
        ["reward 0", "advantage -1.00", "1 tokens", "mean coefficient 0.900", "mean of its side 0.900"],
        ["reward not scored", "advantage -1.00", "1 tokens", "no credit", "mean of its side 0.900"],
        ["reward 1", "advantage 0.00", "1 tokens", "mean coefficient 1.000"],
    ]  # fmt: skip
    tokens = re.findall(r'<span class="(\w*) (\w*)" title="(.*?)">(.*?)</span>', group.html)
    for token, text, values in zip(tokens, ["a", "<b>"], zip(*won.values(), strict=True), strict=False):
        relative = shade(values[0], SPREADS[1], 1.1)
        assert token[:3] == (shade(values[0], SPREADS[0]), f"r{relative}", describe(*values))
        assert unescape(token[3]) == text
    assert len(tokens) == 5
    assert tokens[-1][:2] == ("", "")  # at the mean, and at 1


@pytest.mark.parametrize(
    ("won", "lost", "more"),
    [(2, 1, "winners"), (1, 2, "losers"), (3, 2, ""), (2, 3, ""), (1, 0, "winners"), (0, 1, "losers")],
)
def test_a_side_with_twice_as_many_gets_twice_the_width(tmp_path, won, lost, more):
    advantages = [1.0] * won + [-1.0] * lost + [0.0]
    ((group,), _) = shown(tmp_path, [runs.completion(["a"], advantage=advantage) for advantage in advantages])
    assert f'data-more="{more}"' in group.html
    assert "<h3>At the mean</h3>" in group.html
    assert group.title.startswith(f"step 0 · {won} winners, {lost} losers · ")
    assert group.has_contrast == (won > 0 and lost > 0)


def test_no_contrast(tmp_path):
    ((group,), _) = shown(tmp_path, [runs.completion(["a"], advantage=0.0)])
    assert (group.title, group.has_contrast) == ("step 0 · no contrast · a prompt", False)
    assert "<h3>No contrast: equal rewards, nothing to learn</h3>" in group.html


SIZE = len("a prompt") + 2 * COMPLETION_SIZE + 100 * TOKEN_SIZE


@pytest.mark.parametrize(
    ("budget", "stride"),
    [(6 * SIZE, 1), (6 * SIZE - 1, 2), (3 * SIZE, 2), (3 * SIZE - 1, 3), (2 * SIZE, 3), (2 * SIZE - 1, 6), (SIZE, 6)],
)
def test_as_many_groups_as_fit(tmp_path, budget, stride):
    rows = [runs.completion(["a"] * 50, step=step) for step in range(6) for _ in range(2)]
    groups, notes = shown(tmp_path, rows, budget)
    assert [group.title.split(" · ")[0] for group in groups] == [f"step {step}" for step in range(0, 6, stride)]
    told = (
        f"run: {len(groups)} of 6 recorded groups are shown here, evenly over the run. `--step N` shows those of one"
    )
    assert notes == ([] if stride == 1 else [f"{told} step."])


def test_a_group_that_does_not_fit_is_cut(tmp_path):
    prompt = "?" * 500
    rows = [runs.completion(["a"] * 100, prompt=prompt), runs.completion(["b"] * 50, prompt=prompt, advantage=-1.0)]
    for tokens, budget in ((30, len(prompt) + 2 * (COMPLETION_SIZE + 30 * TOKEN_SIZE)), (1, 1)):
        ((group,), notes) = shown(tmp_path, rows, budget)
        assert notes == [f"run: completions are cut after {tokens} tokens here."]
        assert [group.html.count(f">{token}</span>") for token in "ab"] == [tokens, tokens]


def test_without_credit(tmp_path):
    write_trl(tmp_path, completion=["a" * 300, "b"])
    (group,), notes = shown_groups(read_run(tmp_path), "run", None, 200, SPREADS)
    (limit,) = re.findall(r"run: completions are cut after (\d+) characters here\.", notes[0])
    assert "a" * (int(limit) - 1) + "… (300 characters)" in group.html
    assert facts(group.html)[0] == ["reward 2", "good 1", "right 1", "advantage 1.00"]


def test_prompts_are_named_after_what_differs(tmp_path):
    def titles(*prompts):
        rows = [runs.completion(["a"], prompt=prompt, prompt_index=i) for i, prompt in enumerate(prompts)]
        return [group.title.split(" · ", 2)[2] for group in shown(tmp_path, rows)[0]]

    assert titles("You add. 1 + 2", "You add. 1 + 30") == ["… 2", "… 30"]
    assert titles("You add.\n1", "You add.\n2") == ["… 1", "… 2"]
    assert titles("one", "other") == ["one", "other"]
    assert titles("same", "same") == ["same", "same"]
    assert titles("x" * 100, "y") == ["x" * 80, "y"]


def test_key_figures(tmp_path, monkeypatch):
    monkeypatch.setattr("delta_trl.report.page.get_plotlyjs", str)  # compressing it takes most of a second
    path = runs.write_run(tmp_path / "run", steps=1500, recorded_steps=2)
    run, html = read_run(path), write_report([path], tmp_path / "report.html").read_text()
    figures = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", html))
    first, last = run.history[0], run.history[-1]
    assert figures["optimiser steps"] == "1,500"
    assert figures["reward"] == f"{first['reward']:.3f} → {last['reward']:.3f}"
    lengths = [f"{entry['completions/mean_length']:,.0f}" for entry in (first, last)]
    assert figures["completion length"] == " → ".join(lengths)
    rows = runs.recorded(path)
    assert figures["recorded completions"] == str(len(rows)) == "32"
    low, high = np.quantile([c for row in rows for c in row["coefficients"]], (0.05, 0.95))
    assert figures["coefficients, 5–95 %"] == f"{low:.2f} – {high:.2f}"


@pytest.mark.parametrize("beyond", [0, 1])
def test_token_types_of_the_page(tmp_path, beyond):
    """All of them, or both ends."""
    count = 2 * TABLE_ROWS + beyond
    words = [f"w{i}" for i in range(count)]
    coefficients = np.linspace(1.2, 0.8, count).tolist()
    rows = [runs.completion(words * 20, coefficients=coefficients * 20, step=step) for step in (0, 1)]
    (tmp_path / FOLDER).mkdir()
    runs.write_token_types(tmp_path, rows)
    html = write_report([tmp_path], tmp_path / "report.html", min_count=40).read_text()
    table = html[html.index("<tbody>", html.index('id="clouds"')) :]
    expected = words if beyond < 1 else words[:TABLE_ROWS] + words[-TABLE_ROWS:]
    assert re.findall("<bdi>(.*?)</bdi>", table[: table.index("</tbody>")]) == expected
    left_out = f"; the {TABLE_ROWS} highest and lowest" if beyond > 0 else ""
    assert f"<caption>{count} token types{left_out}</caption>" in html
    for kind, side in (("high", words[: count // 2]), ("low", words[-(count // 2) :])):
        svg = html[html.index(f'<figure class="cloud {kind}">') :]
        named = re.findall(
            r"<title>(w\d+): mean coefficient ([\d.]+), sampled 40 times</title>", svg[: svg.index("</svg>")]
        )
        assert named
        for word, mean in named:
            assert word in side
            assert mean == f"{coefficients[words.index(word)]:.3f}"


def test_what_is_in_no_cloud(tmp_path):
    rows = [runs.completion(["a"] * 20, coefficients=[1.1] * 20)]
    (tmp_path / FOLDER).mkdir()
    runs.write_token_types(tmp_path, rows)
    html = write_report([tmp_path], tmp_path / "report.html", min_count=20).read_text()
    assert html.count("No token type here.") == 2  # alone it is at the average
    html = write_report([tmp_path], tmp_path / "report.html", min_count=21).read_text()
    assert "No token type was sampled 21 times" in html
