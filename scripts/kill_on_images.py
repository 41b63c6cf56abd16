#!/usr/bin/env python3
"""Run the kills of checkpoints on images of ext4, XFS and Btrfs.

usage: kill_on_images.py TEST [--kills N]

TEST is the program checkpoint_kill_test. Each file system is made in a sparse image of 512 MiB,
mounted by a loop device, and given to TEST as its folder. A file system whose mkfs is missing, or
that cannot be mounted (no root, no loop devices), is skipped, and the reason is printed. Exit
status 1: a test failed.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

IMAGE_BYTES = 512 << 20
SYSTEMS = (("ext4", ["-q", "-F"]), ("xfs", ["-q", "-f"]), ("btrfs", ["-q", "-f"]))


def run_on(system, options, folder, test, kills):
    """Returns what is wrong, or None. Raises LookupError with the reason of a skip."""
    command = shutil.which(f"mkfs.{system}")
    if not command:
        raise LookupError(f"mkfs.{system} is not installed")
    image, mount = folder / f"{system}.image", folder / system
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    mount.mkdir()
    subprocess.run([command, *options, image], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", image, mount], capture_output=True, text=True)
    if done.returncode != 0:
        raise LookupError(done.stderr.strip().splitlines()[-1] if done.stderr else "mount failed")
    try:
        variables = {"STOKER_TEST_FOLDER": str(mount), "STOKER_TEST_KILLS": str(kills)}
        done = subprocess.run([test], env={**os.environ, **variables}, capture_output=True,
                              text=True)
        return None if done.returncode == 0 else done.stdout[-2000:] + done.stderr[-2000:]
    finally:
        subprocess.run(["umount", mount], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("test", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=1000)
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="stoker-images-") as folder:
        for system, options in SYSTEMS:
            try:
                problem = run_on(system, options, pathlib.Path(folder), args.test.resolve(),
                                 args.kills)
            except LookupError as reason:
                print(f"{system}: skipped: {reason}", flush=True)
                continue
            failed = failed or problem is not None
            print(f"{system}: {args.kills} kills: {'failed' if problem else 'passed'}", flush=True)
            if problem:
                print(problem)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
