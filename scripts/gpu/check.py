"""
Tests and measurements that need a GPU, in stages of at most ten minutes. README.md says what each settles.

    python -m scripts.gpu.check                           # 12 minutes on an H100 or H200
    python -m scripts.gpu.check --stage tests --minutes 3
    python -m scripts.gpu.check --wheels outputs/wheels   # with what `pack_wheels.py` has packed, offline
    python -m scripts.gpu.check --dry                     # tiny sizes on a processor: does the kit work?

Every stage writes STAGE.json into --output-dir; summary.md sums them up. A finished stage is skipped, a partial one is
continued where possible. A stage runs in its own process and measures less rather than overrun its time. If it is
interrupted or fails, it saves what it has, marked `partial` or `failed`.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from .stages.stage import ROOT, STAGES, Interrupted, Stage, read


GRACE = 20  # seconds beyond its time until a stage is asked to end, and then until it is killed


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=list(STAGES), help="by default all")
    parser.add_argument("--minutes", type=float, help=f"for each stage, instead of {STAGES}")
    parser.add_argument("--output-dir", type=Path, help="outputs/gpu_check, or with --dry its own")
    parser.add_argument("--wheels", type=Path, help="take what is not installed from this folder")
    parser.add_argument("--again", action="store_true", help="also what is finished, and from the start")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on the processor")
    parser.add_argument("--inside", type=float, help=argparse.SUPPRESS)  # in a stage's own process: when to be done
    args = parser.parse_args()
    default = ROOT / "outputs" / ("gpu_check_dry" if args.dry else "gpu_check")
    args.output_dir = (args.output_dir or default).resolve()
    return args


def main() -> int:
    args = parse_args()
    if args.inside:
        return inside(args)
    signal.signal(signal.SIGTERM, interrupt)
    environment = prepare(args)
    failed = False
    for name in args.stage:
        path = args.output_dir / f"{name}.json"
        before = read(path)
        if before and before["dry"] != args.dry:
            sys.exit(f"{path} is of a {'dry' if before['dry'] else 'real'} run: choose another --output-dir")
        if before and args.again:
            path.unlink()
        elif before and before["status"] == "finished":
            print(f"{name}: finished on {before['date']}, skipped (--again measures again)", flush=True)
            continue
        try:
            launch(name, args, time.time() + 60 * (args.minutes or STAGES[name]), environment)
        finally:
            after = read(path)
            write_summary(args.output_dir)
        after = after or {"status": "nothing written", "seconds": 0}
        status = after["status"]
        print(f"{name}: {status}, {after['seconds']:.0f} s", flush=True)
        failed |= status not in ("finished", "partial")
    summary = args.output_dir / "summary.md"
    if summary.is_file():
        print(summary.read_text())
    return int(failed)


def prepare(args: argparse.Namespace) -> dict[str, str]:
    """The environment of the stages' processes."""
    paths = [str(ROOT)]
    if args.wheels:
        from .pack_wheels import unpack

        # datasets makes fingerprints with dill, which recognises libraries by this folder name
        paths.append(str(unpack(args.wheels, args.output_dir / "work" / "site-packages")))
    if "PYTHONPATH" in os.environ:
        paths.append(os.environ["PYTHONPATH"])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",  # nothing here needs the hub, and waiting for it costs time
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    if args.dry:  # also on a machine with a GPU
        environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    else:  # with several, a trainer without launcher would spread over them
        environment.setdefault("CUDA_VISIBLE_DEVICES", "0")
    return environment


def launch(name: str, args: argparse.Namespace, deadline: float, environment: dict[str, str]) -> None:
    """Run a stage in its own process: a CUDA error ends a process, and the end of a process frees all memory."""
    until = time.strftime("%H:%M:%S", time.localtime(deadline))
    print(f"{name}: until {until}", flush=True)
    command = [sys.executable, "-m", "scripts.gpu.check", "--stage", name, "--inside", str(deadline)]
    command += ["--output-dir", str(args.output_dir)]
    if args.dry:
        command.append("--dry")
    process = subprocess.Popen(command, env=environment, cwd=ROOT)
    try:
        process.wait(deadline + GRACE - time.time())
    except subprocess.TimeoutExpired:
        print(f"{name}: its time is over", flush=True)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def inside(args: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, interrupt)
    (name,) = args.stage
    stage = Stage(name, args.output_dir, args.inside, args.dry)
    status = "failed"
    error = None
    try:
        if not args.dry:
            refuse_missing_gpu()
        import_module(f"{__package__}.stages.{name}").run(stage)
        status = "finished"
    except (Interrupted, KeyboardInterrupt):
        status = "partial"
        error = "interrupted"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # while results are written
    except Exception:
        error = traceback.format_exc()[-4000:]
        print(error, file=sys.stderr, flush=True)
    stage.save(status, error)
    return 0


def write_summary(folder: Path) -> None:
    """summary.md: what the stages' JSON files say, in tables that can go into the docs as they are."""
    found = [read(folder / f"{name}.json") for name in STAGES]
    found = [stage for stage in found if stage]
    lines = ["# GPU check", ""]
    if any(stage["dry"] for stage in found):
        lines += ["**A dry run at tiny sizes: its numbers say nothing but that the kit works.**", ""]
    lines += ["| stage | status | seconds | left out |", "|---|---|---|---|"]
    machines = []
    for stage in found:
        left_out = stage["left_out"]
        if len(left_out) > 5:
            left_out = [*left_out[:5], "..."]
        lines.append(f"| {stage['stage']} | {stage['status']} | {stage['seconds']:.0f} | {'; '.join(left_out)} |")
        if stage["machine"] not in machines:
            machines.append(stage["machine"])
    for machine in machines:
        facts = [f"{name} {value}" for name, value in machine.items() if value]
        lines += ["", ", ".join(facts)]
    for stage in found:
        lines += ["", f"## {stage['stage']}", "", stage["text"]]
        if stage["error"]:
            lines += ["", "```", stage["error"].strip()[-1500:], "```"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.md").write_text("\n".join(lines) + "\n")


def refuse_missing_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA device. `--dry` runs all of this at tiny sizes on a processor.")


def interrupt(*args: object) -> None:
    raise Interrupted


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Interrupted:
        sys.exit("interrupted")
