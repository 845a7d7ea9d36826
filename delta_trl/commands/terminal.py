"""
What `delta-trl train` prints: a line per rollout batch, some completions, and on a terminal a progress bar below.

Output to a file or a pipe is plain text. Only the printed text differs from TRL's dicts and tables, which
`terminal: trl` restores. Logs, trackers and saved completions stay the same.
"""

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import datasets
import huggingface_hub
import transformers
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from trl import GRPOTrainer

from ..evaluation.sampling import describe_training
from ..report.run import training_reward
from ..report.text import visible


TERMINALS = ("lines", "trl")
SAMPLE_EVERY = 10  # lines
SAMPLE_CHARACTERS = 3_000  # of a prompt or a completion; `log_completions` saves all of it

TRUNCATED = "completions/clipped_ratio"
# name, key in the logs, format; with steps of five digits and the truncated share, lines have 80 characters
COLUMNS = (
    ("reward", "reward", "{:.3f}"),
    ("tokens", "completions/mean_length", "{:.1f}"),
    ("entropy", "entropy", "{:.3f}"),
    ("credit spread", "credit/coefficient_std", "{:.3f}"),
    ("seconds", "seconds", "{:.1f}"),
)


@contextmanager
def lines(trainer: GRPOTrainer, console: Console | None = None) -> Iterator[None]:
    """Print lines instead of transformers' dicts and progress bars and TRL's tables. Show equal warnings once."""
    callback = Lines(trainer, console)
    for kind in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(kind)
    trainer.num_completions_to_print = 0  # switches off TRL's table; completions are still saved
    trainer.add_callback(callback)
    try:
        with equal_warnings_once():
            yield
    finally:
        callback.close()


class Lines(TrainerCallback):
    """
    Prints a line for every logged rollout batch, on the main process.

    Args:
        trainer (`GRPOTrainer`): The trainer whose logs and completions are printed.
        console (`rich.console.Console`, *optional*): Where to print; standard output by default.
    """

    def __init__(self, trainer: GRPOTrainer, console: Console | None = None):
        self.console = console or Console(markup=False, emoji=False, highlight=False)
        if hasattr(self.console.file, "reconfigure"):
            self.console.file.reconfigure(errors="replace")  # an unprintable character must not end training
        printed = trainer.args.num_completions_to_print
        self.samples = 1 if printed is None else printed
        self._trainer = trainer
        self._progress: Progress | None = None
        self._seconds = self._started = 0.0
        self._shown: set[str] = set()  # names of columns
        self._printed = 0  # lines
        self._needs_header = True

    def on_train_begin(self, args, state, control, **kwargs):
        if not (state.is_world_process_zero and self.console.is_terminal) or args.disable_tqdm:
            return
        # Refreshed by hand: forked workers would not have a refreshing thread. Output to files is not redirected.
        self._progress = Progress(
            *(BarColumn(None), MofNCompleteColumn(), "steps,"),
            *(TimeElapsedColumn(), "so far,", TimeRemainingColumn(), "to go"),
            console=self.console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
            speed_estimate_period=float("inf"),  # steps may take minutes, and those with a rollout take longer
        )
        self._progress.add_task("", total=state.max_steps, completed=state.global_step)
        self._progress.start()

    def on_step_begin(self, args, state, control, **kwargs):
        self._started = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self._seconds += time.perf_counter() - self._started  # without evaluation and saving
        if self._progress:
            self._progress.update(self._progress.task_ids[0], completed=state.global_step, refresh=True)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not state.is_world_process_zero:
            return
        if "reward" in logs:
            self._print_line({**logs, "reward": training_reward(logs), "seconds": self._seconds}, state)
            self._seconds = 0.0
        elif "eval_reward" in logs:
            self._print_evaluation(logs, state)
        if "train_runtime" in logs:
            self.close()
            self._print(f"trained for {logs['train_runtime']:.0f} s")

    def close(self) -> None:
        """Remove the bar."""
        if self._progress:
            self._progress.stop()
            self._progress = None

    def _print_line(self, values: dict, state) -> None:
        shown = self._shown | {name for name, key, _ in COLUMNS if values.get(key) or key == "reward"}
        if shown != self._shown or self._needs_header:
            self._shown, self._needs_header = shown, False
            names = [name for name, *_ in COLUMNS if name in shown]
            self._print(
                Text("  ".join(["step".rjust(len(self._step(state))), *(name.rjust(7) for name in names)]), "bold")
            )
        cells = [self._step(state)]
        for name, key, form in COLUMNS:
            if name in shown:
                value = values.get(key)  # None where no completion could be scored
                cells.append(("-" if value is None else form.format(value)).rjust(max(7, len(name))))
        if values.get(TRUNCATED):
            cells.append(f"{values[TRUNCATED]:.1%} truncated")
        self._print("  ".join(cells))
        if self._printed % SAMPLE_EVERY == 0:
            self._print_samples(state.global_step)
        self._printed += 1

    @staticmethod
    def _step(state) -> str:
        return f"{state.global_step:>{len(str(state.max_steps))}}/{state.max_steps}".rjust(len("step"))

    def _print_evaluation(self, logs: dict, state) -> None:
        reward = logs["eval_reward"]
        found = ["nothing could be scored" if reward is None else f"reward {reward:.3f}"]
        if "eval_runtime" in logs:
            found.append(f"{logs['eval_runtime']:.0f} s")
        found.append(describe_training(self._trainer.args))
        self._print(Text(f"{self._step(state)}  evaluation: {', '.join(found)}", "bold"))

    def _print_samples(self, step: int) -> None:
        """Print completions of the newest rollout batch, which are the last ones that TRL keeps."""
        logged = self._trainer._logs
        total = len(logged["completion"])
        if not (self.samples and total):
            return
        for row in range(total - 1, -1, -max(1, total // self.samples))[: self.samples]:
            rewards = ", ".join(f"{name} {values[row]:.3g}" for name, values in logged["rewards"].items())
            self.console.rule(Text(f"prompt, step {step}"), align="left", style="dim")
            self._print(harmless(logged["prompt"][row]))
            self.console.rule(Text(f"completion, {rewards}"), align="left", style="dim")
            self._print(harmless(logged["completion"][row]))
        self.console.rule(style="dim")
        self._needs_header = True

    def _print(self, text: str | Text) -> None:
        # no line breaks in files: their readers can wrap lines
        self.console.print(text, soft_wrap=not self.console.is_terminal)


def no_progress_bars_in_files() -> None:
    """Switch off the libraries' progress bars (downloads, loading) unless standard error is a terminal."""
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        huggingface_hub.utils.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()


@contextmanager
def equal_warnings_once() -> Iterator[None]:
    """Show equal warnings once. Python forgets which it has shown whenever a library uses `catch_warnings`."""
    shown, show = set(), warnings.showwarning

    def show_once(message, category, filename, lineno, *rest, **others):
        if (warning := (str(message), category, filename, lineno)) not in shown:
            shown.add(warning)
            show(message, category, filename, lineno, *rest, **others)

    warnings.showwarning = show_once
    try:
        yield
    finally:
        warnings.showwarning = show


def harmless(entry: str | list[dict]) -> str:
    """A prompt or completion that is safe to print: control characters are visible, long texts lose their middle."""
    text = entry if isinstance(entry, str) else "\n".join(f"{m.get('role')}: {m.get('content')}" for m in entry)
    if len(text) > SAMPLE_CHARACTERS:
        half = SAMPLE_CHARACTERS // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"
    return "\n".join(visible(line, len(line)) for line in text.split("\n"))
