"""`delta-trl audit`: sample or load completions, score their tokens by every rule, summarise."""

import copy
import io
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState

from ..arguments.errors import UsageError
from ..arguments.parser import parse
from ..credit import Credit, TokenCredit, checked_credit, make_rule, over_this_rank_only
from ..evaluation.evaluate import code_of, fingerprint, sample_seed
from ..evaluation.generation import Sampling, TransformersGenerator, beginning
from ..evaluation.processes import do_chunks, start_processes
from ..evaluation.store import ChunkKey, Store
from ..files import write_atomically
from ..policy.standalone import add_advantages, given_tokens
from ..report.token_log.texts import TokenTexts
from .arguments import AuditArguments
from .benchmarks import make_benchmarks
from .gradients import policy_gradients
from .page import write_page
from .summary import REFERENCE, UNIFORM, check_not_empty, gradient_file, show, summarise


def main(args: list[str]) -> None:
    """Run an audit, or resume it. Raises `UsageError` for a user's mistake."""
    arguments: AuditArguments
    (arguments,) = parse([AuditArguments], args, prog="delta-trl audit")
    state = start_processes(arguments.use_cpu)
    audit = Audit(arguments, state)
    audit.run()
    if state.is_main_process:
        results = summarise(audit.store.folder)
        show(results)
        print(write_page(audit.store.folder, results))
        check_not_empty(results)
    state.destroy_process_group()


class Audit:
    """
    An audit, after all checks that need no model weights.

    Work is divided into rollout batches. The scores of a batch depend only on the settings: neither interruptions nor
    the number of processes change them.
    """

    def __init__(self, args: AuditArguments, state: PartialState):
        assert args.output_dir  # as `AuditArguments` has checked
        self.args, self.state = args, state
        self.rules = make_rules(args.rules)
        self.source = args.source()
        try:
            tokenizer, config = self.source.tokenizer(), self.source.config()
        except (ValueError, OSError, ImportError) as error:
            raise UsageError(
                f"model_name_or_path={self.source.name!r}: cannot be loaded: {beginning(error)}"
            ) from error
        with state.main_process_first():  # the other processes read the data from the cache
            self.benchmarks = make_benchmarks(args, tokenizer, config)
        self.texts = TokenTexts(tokenizer)
        chunks: dict[ChunkKey, int] = {}
        for name, benchmark in self.benchmarks.items():
            # a reference batch has one line: its gradient is in a file
            sizes = [*benchmark.sizes, *[1] * benchmark.references]
            chunks |= {(name, i): size for i, size in enumerate(sizes)}
        self.store = Store(Path(args.output_dir), chunks)
        self._generators: dict[str, TransformersGenerator] = {}

    def _settings(self) -> dict:
        """All settings that the scores depend on."""
        args = self.args
        names = ["model_name_or_path", "model_revision", "dtype", "attn_implementation", "benchmarks", "num_prompts"]
        names += ["num_generations", "prompts_per_batch", "reference_batches", "temperature", "max_completion_length"]
        return {
            **{name: getattr(args, name) for name in [*names, "batch_size", "seed"]},
            "model_fingerprint": fingerprint(self.source),
            "data_fingerprints": {name: benchmark.fingerprint for name, benchmark in self.benchmarks.items()},
            "code_fingerprints": {
                **{name: code_of(rule, getattr(rule, "rule", None)) for name, rule in self.rules.items()},
                **{name: code_of(benchmark) for name, benchmark in self.benchmarks.items()},
            },
            "versions": {"delta-trl": version("delta-trl")},
            "left_out": {name: dict(benchmark.left_out) for name, benchmark in self.benchmarks.items()},
            "rules": {name: repr(rule) for name, rule in self.rules.items()},
        }

    def run(self) -> None:
        """
        Score the batches that are missing, and merge the files of all processes.

        Raises:
            UsageError: If the model cannot be loaded or memory does not suffice, and as [`do_chunks`].
        """
        do_chunks(self.store, self._settings(), self.state, lambda: self._audit, "Auditing")

    def _generator(self, name: str) -> TransformersGenerator:
        """The benchmark's generator; all of them share the model, which is loaded once."""
        generators = self._generators
        if name not in generators:
            benchmark = self.benchmarks[name]
            sampling = Sampling(self.args.temperature, 1.0, benchmark.max_completion_length, benchmark.chats)
            try:
                model = next(iter(generators.values())).model if generators else None
                generator = TransformersGenerator(self.source, sampling, self.state.device, model)
                if self.source.is_adapter() and model is None:  # gradients are taken of the merged model
                    generator.model = generator.model.merge_and_unload().requires_grad_(True)
                generators[name] = generator
            except (ValueError, OSError, ImportError) as error:
                raise UsageError(str(error)) from error
        return generators[name]

    def _audit(self, chunk: ChunkKey) -> list[dict]:
        try:
            return self._score(chunk, self._generator(chunk[0]))
        except torch.OutOfMemoryError as error:
            raise UsageError(
                f"{chunk[0]}: out of memory ({error}). Start again in another --output_dir, with a smaller "
                f"--batch_size than {self.args.batch_size}, or with --reference_batches 0 (no gradients)."
            ) from error

    def _score(self, chunk: ChunkKey, generator: TransformersGenerator) -> list[dict]:
        """The lines of a batch; its gradients go into a file."""
        name, number = chunk
        benchmark, args = self.benchmarks[name], self.args
        rows = benchmark.rows(number, generator)
        add_advantages(rows)
        tokens = given_tokens(generator.model, rows, temperature=args.temperature, micro_batch_size=args.batch_size)
        uniform = torch.ones_like(tokens.advantages)
        if number >= len(benchmark.sizes):
            self._write_gradients(chunk, policy_gradients(tokens, {UNIFORM: uniform}, args.seed))
            return [{"benchmark": name, "chunk": number, REFERENCE: True}]
        _ = tokens.hidden  # asked for first: the same pass then also gives log-probabilities
        weights, scores, metrics = {UNIFORM: uniform}, {}, {}
        for label, rule in self.rules.items():
            torch.manual_seed(sample_seed(args.seed, f"{name}/{label}", number, 0))
            own = copy.deepcopy(rule)  # its state must not depend on which batches came before
            try:
                with over_this_rank_only():
                    credit = checked_credit(own, "of_rollout", tokens)
            except ValueError as error:  # `TokenCreditError` is a `ValueError`
                raise UsageError(f"rules={label!r}: {error}") from error
            except Exception as error:
                error.add_note(f"This was raised by the rule {label!r}.")
                raise
            if credit is None:
                credit = Credit(uniform)
            weights[label] = credit.weights
            scores[label] = credit.weights.cpu()
            metrics[label] = credit.metrics
        if benchmark.references:
            self._write_gradients(chunk, policy_gradients(tokens, weights, args.seed))
        return self._lines(chunk, rows, scores, metrics)

    def _lines(self, chunk: ChunkKey, rows: list[dict], scores: dict, metrics: dict) -> list[dict]:
        lengths = [len(row["token_ids"]) for row in rows]
        split = {label: values.split(lengths) for label, values in scores.items()}
        lines = []
        for i, row in enumerate(rows):
            lines.append(
                {
                    "benchmark": chunk[0],
                    "chunk": chunk[1],
                    "group": row["group"],
                    "prompt": row["prompt"],
                    "reward": row["reward"],
                    "advantage": row["advantage"],
                    "tokens": self.texts.of_sequence(row["token_ids"]),
                    "unit": row["unit"],
                    "marked": row["marked"],
                    "unlabelled": row.get("unlabelled"),
                    "scores": {
                        label: [float(f"{x:.9g}") for x in parts[i].tolist()] for label, parts in split.items()
                    },
                }
            )
        lines[0]["metrics"] = metrics
        return lines

    def _write_gradients(self, chunk: ChunkKey, gradients: dict[str, torch.Tensor]) -> None:
        file = io.BytesIO()
        np.savez(file, rules=np.array(list(gradients)), gradients=torch.stack(list(gradients.values())).numpy())
        write_atomically(file.getvalue(), gradient_file(self.store.folder, chunk))


def make_rules(names: list[str]) -> dict[str, TokenCredit]:
    """Rules by their names. Raises `UsageError` for an unknown rule, and for one that is named twice."""
    rules = {}
    for name in names:
        try:
            rule = make_rule(name)
        except ValueError as error:
            raise UsageError(f"rules: {error}") from error
        if name in rules:
            raise UsageError(f"rules: {name!r} is named twice.")
        if not (rule.credits_rollouts or rule.credits_micro_batches):
            raise UsageError(f"rules: {name!r} credits nothing; uniform credit is in every audit.")
        rules[name] = rule
    return rules
