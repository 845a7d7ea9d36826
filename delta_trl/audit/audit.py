"""`delta-trl audit`: score the tokens of labelled completions by every rule, and see how the labelled ones rank."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..arguments.errors import in_users_code, mistakes
from ..arguments.parser import parse
from ..credit import TokenCredit, checked_credit
from ..evaluation.benchmarks import find
from ..evaluation.results import versions
from ..files import write_atomically, write_json
from ..scoring.standalone import given_tokens, rule_without_training
from ..scoring.texts import TokenTexts
from .arguments import AuditArguments
from .labelled import LABELLED, LabelledData, rollout_batches
from .statistics import SIDES, identification, marked_of
from .table import POSITION, describe


def main(args: list[str]) -> None:
    """Run an audit. Raises `UsageError` for a user's mistake."""
    (arguments,) = parse([AuditArguments], args, prog="delta-trl audit")
    with mistakes():
        audit(arguments)


def audit(args: AuditArguments) -> None:
    """
    Score all completions, and write `scores.jsonl`, `results.json` and `audit.md` into the output directory. Prints
    the last of these.

    Raises:
        ValueError, OSError, ImportError: If a rule, the data or the model cannot be loaded, or do not fit each other.
    """
    folder = Path(args.output_dir)
    rules = {rule: rule_without_training(rule) for rule in args.token_credit}
    reader = args.reader()
    data = {}
    for benchmark in args.benchmarks:
        name, labelled = find(benchmark, LABELLED, LabelledData)
        data[name] = rollout_batches(name, labelled, args, reader)
    folder.mkdir(parents=True, exist_ok=True)  # before the long part, in case it cannot be written
    model = args.model()
    if args.adapter():  # exact gradients are those of the merged model
        model = model.merge_and_unload().requires_grad_(True)
    benchmarks = {}
    scored: list[str] = []
    for name, (batches, left_out) in data.items():
        lines = []
        for number, rows in enumerate(tqdm(batches, desc=name, unit="batch")):
            torch.manual_seed(args.seed + number)
            lines += score(model, rows, rules, args.batch_size, reader.tokenizer)
        scored += [json.dumps({"benchmark": name, **line}) + "\n" for line in lines]
        benchmarks[name] = summarise(lines, args.seed)
        benchmarks[name]["left_out"] = dict(+left_out)
    used = {name: repr(rule) for name, rule in rules.items()}
    results = {
        "settings": {**asdict(args), "token_credit": used},
        "versions": versions(),
        "benchmarks": benchmarks,
    }
    write_atomically("".join(scored).encode(), folder / "scores.jsonl")
    write_json(results, folder / "results.json")
    text = describe(benchmarks)
    write_atomically(text.encode(), folder / "audit.md")
    print(text)
    print(folder / "audit.md")


def score(
    model: PreTrainedModel,
    rows: list[dict],
    rules: dict[str, TokenCredit],
    batch_size: int,
    tokenizer: PreTrainedTokenizerBase,
) -> list[dict]:
    """
    The completions of a rollout batch with `scores`, the weight that each rule gives to each of their tokens, and
    what knows nothing but positions, `POSITION`.

    Raises:
        ValueError: If a rule fails. The message names it.
    """
    tokens = given_tokens(model, rows, tokenizer, micro_batch_size=batch_size)
    _ = tokens.hidden  # asked for first: the same pass then also gives log-probabilities
    texts = TokenTexts(tokenizer)
    lines = []
    for row in rows:
        line = {key: row[key] for key in ("prompt", "reward", "advantage", "unit", "marked")}
        line["tokens"] = texts.of_sequence(row["token_ids"])
        line["scores"] = {}
        lines.append(line)
    lengths = [len(row["token_ids"]) for row in rows]
    for name, rule in rules.items():
        try:
            credit = checked_credit(rule, "of_rollout", tokens)
        except ValueError as error:
            raise ValueError(f"--token_credit {name}: {in_users_code(error) or error}") from error
        weights = torch.ones_like(tokens.advantages) if credit is None else credit.weights
        for line, of_completion in zip(lines, weights.split(lengths), strict=True):
            line["scores"][name] = [float(f"{weight:.9g}") for weight in of_completion.tolist()]
    for line, length in zip(lines, lengths, strict=True):
        line["scores"][POSITION] = [-float(place) for place in range(length)]
    return lines


def summarise(lines: list[dict], seed: int) -> dict:
    """The numbers of a benchmark: `rules`, by rule and side as [`identification`] gives them, and counts."""
    by_rule: dict[str, dict] = {rule: {} for rule in lines[0]["scores"]}
    for side, sign in SIDES.items():
        marked = marked_of(lines, sign)
        if not marked.marks:
            continue
        for rule, numbers in identification(marked, seed).items():
            by_rule[rule][side] = numbers
    prompts = {line["prompt"] for line in lines}
    rewards = [line["reward"] for line in lines if line["reward"] is not None]
    return {
        "rules": by_rule,
        "prompts": len(prompts),
        "completions": len(lines),
        "mean_reward": float(np.mean(rewards)),
    }
