r"""Labelled answers, one file for each kind of question.

Each line has `kind`, `gold`, `label` and either a whole `completion` or an `answer`, which stands in a `\boxed{...}`.
The label is the score of a careful mathematician who grades the final answer only; `null` for an unusable gold.
"""

import json
from pathlib import Path


def labelled_answers() -> list[dict]:
    """All cases, with the fields `kind`, `gold`, `completion` and `label`."""
    cases = []
    for path in sorted(Path(__file__).parent.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            case = json.loads(line)
            if "answer" in case:
                case["completion"] = f"So the result is $\\boxed{{{case.pop('answer')}}}$."
            cases.append(case)
    return cases
