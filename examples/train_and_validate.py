"""Two loaders on one engine, in an epoch loop: python examples/train_and_validate.py PATH

The model is a linear classifier in NumPy, so that no other package is needed.
"""

import sys

import numpy as np
import stoker

engine = stoker.Engine(memory="512MiB")  # one budget and one set of threads for both
train = stoker.Loader(
    sys.argv[1],
    batch_size=8,
    seed=0,
    engine=engine,
    output="numpy",
    image=[stoker.RandomResizedCrop(32), stoker.RandomHorizontalFlip(), stoker.Normalize()],
)
check = stoker.Loader(
    sys.argv[1],
    batch_size=16,
    shuffle="none",
    tail="keep",  # includes the short last batch
    engine=engine,
    output="numpy",
    image=[stoker.Resize(36), stoker.CenterCrop(32), stoker.Normalize()],
)

weights = np.zeros((3 * 32 * 32, len(train.classes) or 2), np.float32)
for epoch in range(3):
    train.set_epoch(epoch)
    for images, labels in train:
        x = images.reshape(len(images), -1)
        scores = np.exp(x @ weights / 100)
        error = scores / scores.sum(1, keepdims=True) - np.eye(weights.shape[1])[labels]
        weights -= 0.01 * (x.T @ error.astype(np.float32)) / len(x)
    right = total = 0
    for images, labels in check:
        right += int(((images.reshape(len(images), -1) @ weights).argmax(1) == labels).sum())
        total += len(labels)
    stats = train.stats()
    print(f"epoch {epoch}: {right} of {total} right, waited {stats['wait_share']:.0%} for data")
