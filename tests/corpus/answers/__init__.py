r"""Labelled answers, one file for each kind of question.

Each line has `kind`, `gold`, `label` and either a whole `completion` or an `answer`, which stands in a `\boxed{...}`.
Some have a `prompt`.
The label is the score that a careful mathematician gives to the final answer alone; `null` if the gold is unusable.
`known` is the score that `math_reward` gives where it errs: docs/rewards.md, What is not covered.
"""

import json
from pathlib import Path


def labelled_answers() -> list[dict]:
    """All cases, with the fields `kind`, `gold`, `completion`, `prompt`, `label` and, if misjudged, `known`."""
    cases = []
    for path in sorted(Path(__file__).parent.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            case = {"prompt": ""} | json.loads(line)
            if "answer" in case:
                case["completion"] = f"So the result is $\\boxed{{{case.pop('answer')}}}$."
            cases.append(case)
    return cases
