"""A reward for the recipes of test_resume.py that kills its own process: in a `rollout` or a `save`, says `KILL`."""

import os
import signal

import torch

from . import tiny


KILL, KILL_STEP = os.environ.get("KILL"), os.environ.get("KILL_STEP")


def reward(completions, trainer_state, **kwargs):
    if KILL == "rollout" and trainer_state.global_step == int(KILL_STEP):
        os.kill(os.getpid(), signal.SIGKILL)
    return tiny.reward_letters(completions)


if KILL == "save":
    save = torch.save

    def save_half(obj, file, *args, **kwargs):
        if f"checkpoint-{KILL_STEP}" in str(file):
            with open(file, "wb") as half:
                half.write(b"half of it")
            os.kill(os.getpid(), signal.SIGKILL)
        return save(obj, file, *args, **kwargs)

    torch.save = save_half
