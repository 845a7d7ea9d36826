"""`delta-trl train --help`: our options, and the few of TRL's that every recipe sets."""

import argparse
from functools import partial


TRL = {
    "model": ("model_name_or_path", "use_peft", "lora_r"),
    "rollouts": (
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "steps_per_generation",
        "num_generations",
        "max_completion_length",
        "use_vllm",
    ),
    "training": (
        "output_dir",
        "learning_rate",
        "max_steps",
        "num_train_epochs",
        "bf16",
        "use_cpu",
        "seed",
        "logging_steps",
        "save_steps",
        "resume_from_checkpoint",
        "report_to",
    ),
}
USAGE = """\
%(prog)s --config RECIPE.yaml [--option value …]
       %(prog)s --config RECIPE.yaml --dry-run [--num-processes N]
"""
END = """\
All options are keys of the recipe, too. Those of the last three groups are TRL's, which has more: its documentation
describes them (GRPOConfig, ModelConfig), and `%(prog)s --help-all` prints them all.
"""


def short_help(parser: argparse.ArgumentParser, ours: dict[str, list[str]]) -> str:
    """
    Args:
        parser (`argparse.ArgumentParser`): Of all options.
        ours (`dict[str, list[str]]`): Titles of groups, and the options in each.

    Returns:
        `str`: The first sentence of each option's help, in groups, with its default unless that is `None` or `False`.
    """
    shown = argparse.ArgumentParser(
        prog=parser.prog,
        usage=USAGE,
        epilog=END,
        formatter_class=partial(argparse.HelpFormatter, max_help_position=34),
        add_help=False,
    )
    actions = {action.dest: action for action in reversed(parser._actions)}  # reversed: --name wins over --no_name
    for title, names in {**ours, **TRL}.items():
        group = shown.add_argument_group(title)
        for name in names:
            text, default = actions[name].help.split(". ")[0].rstrip("."), actions[name].default
            if default is not None and default is not False:
                text += " (%(default)s)"
            group.add_argument(f"--{name}", action="store_true", default=default, help=text)
    return shown.format_help()


class HelpAll(argparse.Action):
    """Prints what `argparse` would for `--help`, and exits."""

    def __init__(self, option_strings, dest, **options):
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser, namespace, values, option_string=None):
        print(argparse.ArgumentParser.format_help(parser), end="")
        parser.exit()
