"""Trains a small classifier on the stream and tests it on pixels that were not used for training.

Classes are photographs: the crops for training are from the left three quarters of each, those for
the test from the right quarter. The required accuracy is printed before, and compared after.
"""
from show import DATA, Line, bar, save  # first: see there

import sys
import time

import numpy
import stoker

from model import SIDE, make_model

GOAL = 0.80  # of held-out pictures; guessing one of 12 classes gives 0.08
EPOCHS = 10
BATCH = 64


def main():
    train = stoker.Loader(DATA / "train", batch_size=BATCH, seed=0, image=[
        stoker.RandomResizedCrop(SIDE, scale=(0.35, 1.0)), stoker.RandomHorizontalFlip()])
    test = stoker.Loader(DATA / "val", batch_size=BATCH, shuffle="none", tail="keep", image=[
        stoker.Resize(72), stoker.CenterCrop(SIDE)])
    classes = len(train.classes)
    model = make_model(classes, EPOCHS * len(train))
    print(f"  {model.name}; {classes} classes")
    print("  waited: the share of the time in which the training loop waited for data")
    print(f"  goal: at least {GOAL:.0%} of the held-out pictures right "
          f"(guessing: {1 / classes:.0%})")

    line, start, images_seen = Line(), time.monotonic(), 0
    for epoch in range(EPOCHS):
        train.set_epoch(epoch)
        losses, hits = [], []
        for step, (images, labels) in enumerate(train):
            loss, hit = model.train(images, labels)
            losses.append(loss)
            hits.append(hit)
            images_seen += len(labels)
            rate, waited = images_seen / (time.monotonic() - start), train.stats()["wait_share"]
            text = (f"epoch {epoch + 1:2}/{EPOCHS} {bar((step + 1) / len(train))} "
                    f"{rate:5.0f} images/s  loss {numpy.mean(losses):.3f}  "
                    f"right {numpy.mean(hits):4.0%}  waited {waited:4.1%}")
            line.show(text)
        line.end(text)

    right = total = 0
    for images, labels in test:
        right += int((model.predict(images) == numpy.asarray(labels)).sum())
        total += len(labels)
    accuracy = right / total
    reached = accuracy >= GOAL
    seconds = time.monotonic() - start
    print(f"  held-out: {right} of {total} right = {accuracy:.1%}; the goal of {GOAL:.0%} is "
          f"{'reached' if reached else 'MISSED'}")
    save("train", model=model.name, accuracy=accuracy, goal=GOAL, reached=reached, seconds=seconds,
         images_per_second=rate, wait_share=waited)
    return 0 if reached else 4


if __name__ == "__main__":
    sys.exit(main())
