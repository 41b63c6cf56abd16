"""Two small classifiers of 64 x 64 pictures with one face: train(images, labels), predict(images).

NumPy: what a picture looks like as some 400 numbers (colours, edges and their directions, in a grid
of cells), then a net of two layers. PyTorch, where it is importable: a convolutional net on the
pixels. Both take batches of the stream as they come: uint8, N x 3 x 64 x 64.
"""
import numpy

try:
    import torch
except ImportError:
    torch = None

SIDE = 64    # pixels
CELLS = 4    # of the grid, in each direction
ANGLES = 8   # directions of edges
HIDDEN = 128


def make_model(classes, steps):
    """The classifier for this machine; steps: the total number of batches."""
    return TorchModel(classes, steps) if torch else NumpyModel(classes, steps)


def cells(values):
    """Means over the cells of a grid: N x H x W -> N x CELLS * CELLS."""
    n, height, width = values.shape
    grid = values.reshape(n, CELLS, height // CELLS, CELLS, width // CELLS)
    return grid.mean(axis=(2, 4)).reshape(n, -1)


def features(images):
    """Features of an image that depend little on positions."""
    pixels = numpy.asarray(images).astype(numpy.float32) / 255
    n = len(pixels)
    luma = pixels.mean(axis=1)
    colour = numpy.stack([luma, pixels[:, 0] - pixels[:, 1], pixels[:, 2] - luma], axis=1)
    columns = [cells(plane) for plane in colour.swapaxes(0, 1)]
    for step in (1, 4):  # fine and coarse edges
        across = numpy.zeros_like(luma)
        down = numpy.zeros_like(luma)
        across[:, :, step:-step] = luma[:, :, 2 * step:] - luma[:, :, :-2 * step]
        down[:, step:-step, :] = luma[:, 2 * step:, :] - luma[:, :-2 * step, :]
        strength = numpy.hypot(across, down)
        angle = (numpy.arctan2(down, across) * (ANGLES / numpy.pi) % ANGLES).astype(numpy.int32)
        columns.append(cells(strength))
        columns += [cells(strength * (angle == k)) for k in range(ANGLES)]
    columns.append(colour.reshape(n, 3, -1).std(axis=2))
    bins = (pixels * 3.999).astype(numpy.int32)  # 4 x 4 x 4 colours: how much of each
    joint = (bins[:, 0] * 16 + bins[:, 1] * 4 + bins[:, 2]).reshape(n, -1)
    counts = numpy.bincount((joint + 64 * numpy.arange(n)[:, None]).ravel(), minlength=64 * n)
    columns.append(numpy.sqrt(counts.reshape(n, 64) / joint.shape[1]))
    return numpy.concatenate(columns, axis=1).astype(numpy.float32)


class NumpyModel:
    """features -> standardise -> linear -> ReLU -> linear -> softmax; SGD with momentum."""

    name = "NumPy: colours and edges, then a net of two layers"

    def __init__(self, classes, steps):
        self.classes, self.steps, self.step = classes, steps, 0
        self.rng = numpy.random.default_rng(0)
        self.weights = None

    def start(self, x):
        """Mean and deviation are those of the first batch, a fair sample of a shuffled stream."""
        self.mean, self.scale = x.mean(axis=0), 1 / (x.std(axis=0) + 0.02)
        sizes = [x.shape[1], HIDDEN, self.classes]
        self.weights = [self.rng.normal(0, (2 / a) ** 0.5, (a, b)).astype(numpy.float32)
                        for a, b in zip(sizes, sizes[1:])]
        self.biases = [numpy.zeros(b, numpy.float32) for b in sizes[1:]]
        self.speeds = [numpy.zeros_like(p) for p in self.weights + self.biases]

    def forward(self, images):
        x = features(images)
        if self.weights is None:
            self.start(x)
        x = numpy.clip((x - self.mean) * self.scale, -4, 4)
        hidden = numpy.maximum(x @ self.weights[0] + self.biases[0], 0)
        scores = hidden @ self.weights[1] + self.biases[1]
        chances = numpy.exp(scores - scores.max(axis=1, keepdims=True))
        return x, hidden, chances / chances.sum(axis=1, keepdims=True)

    def train(self, images, labels):
        """One step; the loss and the share of the batch that was right before it."""
        labels = numpy.asarray(labels)
        x, hidden, chances = self.forward(images)
        n = len(labels)
        right = chances[numpy.arange(n), labels]
        target = numpy.full_like(chances, 0.05 / self.classes)  # labels smoothed by 5 %
        target[numpy.arange(n), labels] += 0.95
        slope = (chances - target) / n
        hidden_slope = (slope @ self.weights[1].T) * (hidden > 0)
        slopes = [x.T @ hidden_slope, hidden.T @ slope, hidden_slope.sum(axis=0),
                  slope.sum(axis=0)]
        rate = 0.03 * 0.5 * (1 + numpy.cos(numpy.pi * min(self.step / self.steps, 1)))
        for p, speed, g in zip(self.weights + self.biases, self.speeds, slopes):
            speed *= 0.9
            speed -= rate * (g + (1e-3 * p if p.ndim == 2 else 0))
            p += speed
        self.step += 1
        loss = -numpy.log(numpy.maximum(right, 1e-9)).mean()
        return float(loss), float((chances.argmax(axis=1) == labels).mean())

    def predict(self, images):
        """The class of each picture, as a NumPy array."""
        return self.forward(images)[2].argmax(axis=1)


class TorchModel:
    """Four convolutions, mean and deviation of each one's output, linear; SGD with momentum."""

    name = "PyTorch: a convolutional net of four layers"

    def __init__(self, classes, steps):
        torch.manual_seed(0)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        widths = (3, 24, 48, 96, 128)
        self.stages = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Conv2d(before, width, 3, stride=2, padding=1, bias=False),
                                torch.nn.BatchNorm2d(width), torch.nn.ReLU())
            for before, width in zip(widths, widths[1:]))
        self.last = torch.nn.Sequential(torch.nn.Dropout(0.3),
                                        torch.nn.Linear(2 * sum(widths), classes))
        self.net = torch.nn.ModuleList([self.stages, self.last]).to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9,
                                         weight_decay=5e-4, nesterov=True)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1,
                                                            total_steps=steps + 1)
        self.loss = torch.nn.CrossEntropyLoss(label_smoothing=0.05)

    def scores(self, images):
        seen = torch.as_tensor(images).to(self.device).to(torch.float32) / 127.5 - 1
        found = [seen.mean(dim=(2, 3)), seen.std(dim=(2, 3))]
        for stage in self.stages:
            seen = stage(seen)
            found += [seen.mean(dim=(2, 3)), seen.std(dim=(2, 3))]
        return self.last(torch.cat(found, dim=1))

    def train(self, images, labels):
        """One step; the loss and the share of the batch that was right before it."""
        labels = torch.as_tensor(labels).to(self.device)
        self.net.train()
        scores = self.scores(images)
        loss = self.loss(scores, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item(), (scores.argmax(dim=1) == labels).float().mean().item()

    def predict(self, images):
        """The class of each picture, as a NumPy array."""
        self.net.eval()
        with torch.no_grad():
            return self.scores(images).argmax(dim=1).cpu().numpy()
