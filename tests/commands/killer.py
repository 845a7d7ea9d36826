"""A reward for the recipes of test_resume.py that sends its own process the signal `KILL`.

`KILL_IN` says whether in a `rollout` or in a `save`, `KILL_STEP` at which step.
"""

import os

import torch

from ..corpus import tiny


KILL = os.environ.get("KILL")
KILL_IN = os.environ.get("KILL_IN")
KILL_STEP = os.environ.get("KILL_STEP")


def reward(completions, trainer_state, **kwargs):
    if KILL_IN == "rollout" and trainer_state.global_step == int(KILL_STEP):
        os.kill(os.getpid(), int(KILL))
    return tiny.reward_letters(completions)


if KILL_IN == "save":
    save = torch.save

    def save_half(obj, file, *args, **kwargs):
        if f"checkpoint-{KILL_STEP}" in str(file):
            with open(file, "wb") as half:
                half.write(b"half of it")
            os.kill(os.getpid(), int(KILL))
        return save(obj, file, *args, **kwargs)

    torch.save = save_half
