"""Draws a batch as a contact sheet, and the throughput of one and two threads over time.

usage: pictures.py [--docs FILE]     --docs: a small contact sheet for the README instead
"""
from show import DATA, HOME, Line, save  # first: see there

import argparse
import pathlib
import sys
import time

import numpy
import stoker
from PIL import Image, ImageDraw, ImageFont

SECONDS = 6.0   # a curve
BIN = 0.5       # seconds a point
SIDE = 224
INK, GREY, PAPER = (33, 37, 41), (206, 212, 218), (255, 255, 255)
CURVES = {1: (13, 110, 253), 2: (214, 51, 132)}


def contact_sheet(path, columns, rows, side, colours=None):
    """A batch as training gets it: cropped, flipped, jittered; the class under each image."""
    loader = stoker.Loader(DATA / "train", batch_size=columns * rows, seed=3, layout="NHWC",
                           image=[stoker.RandomResizedCrop(side, scale=(0.3, 1.0)),
                                  stoker.RandomHorizontalFlip(),
                                  stoker.ColorJitter(0.2, 0.2, 0.2)])
    images, labels = next(iter(loader))
    gap, text = 4, 14
    cell = side + gap
    sheet = Image.new("RGB", (columns * cell + gap, rows * (cell + text) + gap), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default()
    for i, (pixels, label) in enumerate(zip(numpy.asarray(images), numpy.asarray(labels))):
        x, y = gap + i % columns * cell, gap + i // columns * (cell + text)
        sheet.paste(Image.fromarray(pixels), (x, y))
        draw.text((x + 1, y + side + 1), loader.classes[int(label)], INK, font)
    if colours:
        sheet = sheet.quantize(colours)
    sheet.save(path, optimize=True)


def name_threads(threads):
    return f"{threads} thread{'s' if threads > 1 else ''}"


def measure(threads, line):
    """[(seconds, images/s)] of a stream of 224 x 224 batches without further work."""
    loader = stoker.Loader(DATA / "train", batch_size=64, seed=1, threads=threads, image=[
        stoker.RandomResizedCrop(SIDE), stoker.RandomHorizontalFlip(), stoker.Normalize()])
    start, points, since, count, total = time.monotonic(), [], 0.0, 0, 0
    while since < SECONDS:
        for images, _ in loader:
            count += len(images)
            now = time.monotonic() - start
            if now - since >= BIN:
                points.append((now, count / (now - since)))
                total, since, count = total + count, now, 0
                line.show(f"{name_threads(threads)}: {points[-1][1]:,.0f} images/s")
                if now >= SECONDS:
                    break
    return points, total / since


def nice_step(highest):
    """A round step that cuts 0..highest into 4 to 8 parts."""
    step = 10 ** len(str(int(highest)))
    for divisor in (2, 2.5, 2) * 4:
        if highest / step >= 4:
            break
        step /= divisor
    return max(int(step), 1)


def plot(path, curves):
    """Images per second over time: axes, ticks, a curve for each number of threads."""
    width, height, left, right, top, bottom = 760, 420, 84, 24, 48, 56
    image = Image.new("RGB", (width, height), PAPER)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default()
    highest = max(rate for points, _ in curves.values() for _, rate in points) * 1.1
    latest = max(points[-1][0] for points, _ in curves.values())

    def place(seconds, rate):
        return (left + seconds / latest * (width - left - right),
                height - bottom - rate / highest * (height - top - bottom))

    for rate in range(0, int(highest) + 1, nice_step(highest)):
        _, y = place(0, rate)
        draw.line([(left, y), (width - right, y)], GREY)
        label = f"{rate:,}"
        draw.text((left - 8 - draw.textlength(label, font), y - 6), label, INK, font)
    for second in range(0, int(latest) + 1):
        x, y = place(second, 0)
        draw.line([(x, y), (x, y + 5)], INK)
        draw.text((x - 3, y + 8), str(second), INK, font)
    draw.line([place(0, highest), place(0, 0), place(latest, 0)], INK, 2)
    draw.text((left + (width - left - right) / 2 - 20, height - 24), "seconds", INK, font)
    draw.text((12, top - 24), "images/s", INK, font)
    title = f"stoker: {SIDE} x {SIDE} float32 batches of 64, page cache warm"
    draw.text((left, 12), title, INK, font)
    for row, (threads, (points, mean)) in enumerate(curves.items()):
        colour = CURVES[threads]
        spots = [place(*point) for point in points]
        draw.line(spots, colour, 3)
        for x, y in spots:
            draw.ellipse([x - 3, y - 3, x + 3, y + 3], colour)
        label = f"{name_threads(threads)}: {mean:,.0f} images/s on average"
        y = height - bottom - 44 + 18 * row
        draw.line([(width - right - 250, y + 6), (width - right - 230, y + 6)], colour, 3)
        draw.text((width - right - 224, y), label, INK, font)
    image.save(path, optimize=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--docs", type=pathlib.Path)
    args = parser.parse_args()
    if args.docs:
        contact_sheet(args.docs, 8, 3, 72, colours=256)
        return 0
    line = Line()
    sheet, graph = HOME / "batch.png", HOME / "throughput.png"
    contact_sheet(sheet, 8, 6, 128)
    line.end(f"contact sheet    {sheet}")
    curves = {threads: measure(threads, line) for threads in CURVES}
    plot(graph, curves)
    rates = {str(threads): mean for threads, (_, mean) in curves.items()}
    line.end(f"throughput plot  {graph}")
    save("pictures", sheet=str(sheet), graph=str(graph), rates=rates)
    return 0


if __name__ == "__main__":
    sys.exit(main())
