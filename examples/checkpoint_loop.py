"""Trains, saves checkpoints in the background, and resumes from the newest one.

python examples/checkpoint_loop.py train/        # a folder with a folder for each class
"""

import pathlib
import sys
import tempfile

import numpy
import stoker


class Model:
    """Two arrays that learn; any object with state_dict() and load_state_dict() will do."""

    def __init__(self):
        self.mean = numpy.zeros(3, "f4")
        self.seen = 0

    def step(self, images):
        self.mean += 0.1 * (numpy.asarray(images).mean(axis=(0, 2, 3)) - self.mean)
        self.seen += len(images)

    def state_dict(self):
        return {"mean": self.mean, "seen": self.seen}

    def load_state_dict(self, state):
        self.mean, self.seen = state["mean"], state["seen"]


def train(data, folder, steps):
    model = Model()
    loader = stoker.Loader(data, batch_size=8, image=[stoker.Resize((32, 32))], seed=1)
    with stoker.Checkpointer(folder, keep_last=2, keep_best=("brightness", 1, "max")) as ckpt:
        state = {"model": model, "loader": loader, "step": 0}
        ckpt.restore(state)
        begun = state["step"]
        batches = iter(loader)
        for step in range(begun + 1, begun + steps + 1):
            images, _ = next(batches)
            model.step(images)
            state["step"] = step
            ckpt.save(step, state, metrics={"brightness": float(model.mean.mean())})
    loader.close()
    return begun, model


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "run")
        train(sys.argv[1], path, 2)
        begun, model = train(sys.argv[1], path, 2)  # as after a restart
        print(f"continued at step {begun}, {model.seen} images seen")


if __name__ == "__main__":
    main()
