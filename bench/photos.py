#!/usr/bin/env python3
"""Make picture sets from the photographs in Debian's wallpaper packages.

usage: photos.py --kind bench|demo --out DIR [--count N] [--seed N] [--jobs N]

bench  crops of about 97 kB, the size of a picture of ImageNet (500x375, quality 93-96, 4:2:0):
           DIR/folder/classNN/IIIIII.jpg    one folder a photograph
           DIR/tars/train-NNNNNN.tar        the same bytes, 600 samples a tar, .jpg and .cls
demo   crops with sides of 160-200 pixels, one in ten PNG, one in ten WebP, the rest JPEG:
           DIR/train/CLASS/...              from the left three quarters of each photograph
           DIR/val/CLASS/...                from the right quarter: no pixel is in both

Crop i depends on the seed and on i alone, so the set is the same for any number of jobs, and a run
that was stopped continues where it was. A set that is complete is left as it is.
"""
import argparse
import concurrent.futures
import functools
import io
import json
import os
import pathlib
import sys
import tarfile
import time

import numpy
from PIL import Image

VERSION = 1
PACKAGES = "plasma-workspace-wallpapers mate-backgrounds gnome-backgrounds ukui-wallpapers"
SAMPLES_A_TAR = 600
FEWEST_PHOTOS = 8

# Photographs, and a few pictures as detailed as one, by the name of their class in the demo. Those
# marked as demo look alike on the left and on the right, and are distinct to the eye; some share
# their colours, so that a model has to learn more than the mean of a picture.
PHOTOS = [
    # name, file under /usr/share, in the demo
    ("autumn", "wallpapers/Autumn/contents/images/2560x1600.jpg", False),
    ("boats", "wallpapers/EveningGlow/contents/images/2560x1600.jpg", False),
    ("cups", "wallpapers/ColorfulCups/contents/images/2560x1600.jpg", True),
    ("deck", "wallpapers/BytheWater/contents/images/2560x1600.jpg", True),
    ("drops", "backgrounds/mate/nature/RainDrops.jpg", False),
    ("dune", "backgrounds/mate/nature/Dune.jpg", True),
    ("facade", "wallpapers/Grey/contents/images/2560x1600.jpg", True),
    ("forest", "wallpapers/Path/contents/images/2560x1600.jpg", True),
    ("garden", "backgrounds/mate/nature/Garden.jpg", False),
    ("ladybird", "backgrounds/mate/nature/LadyBird.jpg", False),
    ("leaf", "backgrounds/mate/nature/Blinds.jpg", True),
    ("leaves", "wallpapers/FallenLeaf/contents/images/2560x1600.jpg", True),
    ("meadow", "backgrounds/mate/nature/GreenMeadow.jpg", True),
    ("moss", "wallpapers/OneStandsOut/contents/images/2560x1600.jpg", True),
    ("painting", "backgrounds/mate/abstract/Elephants_3840x2160.jpg", True),
    ("petals", "backgrounds/mate/nature/FreshFlower.jpg", False),
    ("pier", "wallpapers/ColdRipple/contents/images/2560x1600.jpg", False),
    ("rocket", "wallpapers/SafeLanding/contents/images/5120x2880.jpg", False),
    ("seeds", "backgrounds/mate/nature/TwoWings.jpg", False),
    ("shore", "wallpapers/Volna/contents/images/5120x2880.jpg", False),
    ("silk", "backgrounds/rhythm.jpg", False),
    ("sky", "wallpapers/Kite/contents/images/2560x1600.jpg", True),
    ("storm", "backgrounds/mate/nature/Storm.jpg", True),
    ("wood", "backgrounds/mate/nature/Wood.jpg", False),
    ("yellow", "backgrounds/mate/nature/YellowFlower.jpg", False),
]


def find_photos(kind):
    """Return [(name, path)] of the photographs of this kind that are installed."""
    found = []
    for name, file, in_demo in PHOTOS:
        path = pathlib.Path("/usr/share") / file
        if kind == "demo" and not in_demo:
            continue
        if path.exists():
            found.append((name, str(path)))
        else:
            print(f"photos: {path} is missing, going on without it", file=sys.stderr)
    if len(found) < FEWEST_PHOTOS:
        sys.exit(f"photos: {len(found)} photographs, {FEWEST_PHOTOS} are needed: "
                 f"apt-get install --no-install-recommends {PACKAGES}")
    return found


@functools.lru_cache(maxsize=1)
def load_photo(path):
    """Return the photograph as RGB, at most about 3,000 pixels wide: libjpeg halves it for free."""
    image = Image.open(path)
    if image.width > 3000:
        image.draft("RGB", (image.width // 2, image.height // 2))
    return image.convert("RGB")


def random_box(rng, region, size, zoom_max):
    """A box of size (w, h) times a random zoom, somewhere inside region (x0, y0, x1, y1)."""
    x0, y0, x1, y1 = region
    width, height = size
    fits = min((x1 - x0) / width, (y1 - y0) / height)
    zoom = fits if fits <= 1 else rng.uniform(1, min(fits, zoom_max))
    w, h = width * zoom, height * zoom
    x, y = rng.uniform(x0, max(x1 - w, x0)), rng.uniform(y0, max(y1 - h, y0))
    return (x, y, min(x + w, x1), min(y + h, y1))


def add_noise(rng, image, sigma):
    """Add a camera's noise: the wallpapers are cleaner than pictures of their size would be."""
    pixels = numpy.asarray(image, dtype=numpy.float32)
    height, width, _ = pixels.shape
    grey = rng.standard_normal((height, width, 1), dtype=numpy.float32) * (sigma * 0.8)
    colour = rng.standard_normal((height, width, 3), dtype=numpy.float32) * (sigma * 0.6)
    return Image.fromarray(numpy.clip(pixels + grey + colour + 0.5, 0, 255).astype(numpy.uint8))


def make_bench_crop(rng, photo):
    """Return (suffix, bytes) of one crop for the benchmark."""
    if rng.random() < 0.72:
        size = (500, int(rng.choice([375, 375, 375, 333, 334])))
    else:
        size = (int(rng.choice([375, 333])), 500)
    box = random_box(rng, (0, 0, photo.width, photo.height), size, 8)
    image = photo.resize(size, Image.Resampling.LANCZOS, box=box)
    image = add_noise(rng, image, rng.uniform(5.3, 11))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=int(rng.integers(93, 97)), subsampling="4:2:0")
    return "jpg", out.getvalue()


def make_demo_crop(rng, photo, held_out):
    """Return (suffix, bytes) of one crop for the demo."""
    border = photo.width * 3 // 4
    if held_out:
        region = (border, 0, photo.width, photo.height)
    else:
        region = (0, 0, border, photo.height)
    size = (int(rng.integers(160, 201)), int(rng.integers(160, 201)))
    image = photo.resize(size, Image.Resampling.BICUBIC, box=random_box(rng, region, size, 2.5))
    out = io.BytesIO()
    codec = rng.random()
    if codec < 0.1:
        image.save(out, "PNG", compress_level=3)
        return "png", out.getvalue()
    if codec < 0.2:
        image.save(out, "WEBP", quality=90, method=1)
        return "webp", out.getvalue()
    image.save(out, "JPEG", quality=90, progressive=bool(rng.random() < 0.1))
    return "jpg", out.getvalue()


def write_file(path, data):
    """Write under another name first, so that a file with its final name is always complete."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.rename(path)


def make_crops(job):
    """Make some crops of one photograph; return how many, and their bytes."""
    photo, crops, seed = job
    total = 0
    for index, stem, held_out in crops:
        stem = pathlib.Path(stem)
        made = [stem.with_suffix(suffix) for suffix in (".jpg", ".png", ".webp")]
        made = [path for path in made if path.exists()]
        if made:
            total += made[0].stat().st_size
            continue
        rng = numpy.random.default_rng([seed, index])
        if held_out is None:
            suffix, data = make_bench_crop(rng, load_photo(photo))
        else:
            suffix, data = make_demo_crop(rng, load_photo(photo), held_out)
        write_file(stem.with_suffix("." + suffix), data)
        total += len(data)
    return len(crops), total


def plan(args, photos):
    """Return the jobs: per photograph, lists of (index, path without suffix, held out or None)."""
    per_photo = [[] for _ in photos]
    for index in range(args.count):
        which = index % len(photos)
        name = photos[which][0]
        held_out = None
        if args.kind == "bench":
            folder = args.out / "folder" / f"class{which:02d}"
        else:
            held_out = index // len(photos) % 6 == 5
            folder = args.out / ("val" if held_out else "train") / name
        folder.mkdir(parents=True, exist_ok=True)
        per_photo[which].append((index, str(folder / f"{index:06d}"), held_out))
    # Pieces of 64 crops: small enough to show progress, long enough to load a photograph once.
    return [(photos[which][1], crops[at:at + 64], args.seed)
            for which, crops in enumerate(per_photo) for at in range(0, len(crops), 64)]


class Progress:
    """A line on stderr: rewritten in place on a terminal, one a few seconds elsewhere."""

    def __init__(self, what, total):
        self.what, self.total, self.start, self.last = what, total, time.monotonic(), 0.0
        self.live = sys.stderr.isatty()

    def show(self, done):
        now = time.monotonic()
        last_one = done >= self.total
        if now - self.last < (0.2 if self.live else 5) and not last_one:
            return
        self.last = now
        end = "\n" if last_one or not self.live else ""
        print(f"{chr(13) if self.live else ''}photos: {self.what} {done:,} of {self.total:,}, "
              f"{now - self.start:.0f} s", end=end, file=sys.stderr, flush=True)


def tar_member(name, data):
    """A member with nothing in it that depends on the machine or on the hour."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), 0o644, 0
    return member, io.BytesIO(data)


def write_tars(args, photos):
    """Write the crops into WebDataset tars, in the order of their numbers: classes take turns."""
    folder = args.out / "tars"
    folder.mkdir(parents=True, exist_ok=True)
    progress = Progress("packed", args.count)
    for number, first in enumerate(range(0, args.count, SAMPLES_A_TAR)):
        path = folder / f"train-{number:06d}.tar"
        last = min(first + SAMPLES_A_TAR, args.count)
        if not path.exists():
            part = path.with_suffix(".part")
            with tarfile.open(part, "w", format=tarfile.USTAR_FORMAT) as tar:
                for index in range(first, last):
                    which = index % len(photos)
                    jpeg = args.out / "folder" / f"class{which:02d}" / f"{index:06d}.jpg"
                    tar.addfile(*tar_member(f"{index:06d}.jpg", jpeg.read_bytes()))
                    tar.addfile(*tar_member(f"{index:06d}.cls", str(which).encode()))
            part.rename(path)
        progress.show(last)


def write_facts(path, made_of, size, count):
    """Record the parts of the set before the first crop, and its bytes (not 0) after the last."""
    facts = {"made_of": made_of, "bytes": size, "bytes_mean": round(size / count)}
    write_file(path, json.dumps(facts, indent=1).encode() + b"\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", choices=["bench", "demo"], required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, help="crops (6000 for bench, 3000 for demo)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    args.count = args.count or {"bench": 6000, "demo": 3000}[args.kind]

    photos = find_photos(args.kind)
    made_of = {"version": VERSION, "kind": args.kind, "count": args.count, "seed": args.seed,
               "classes": [name for name, _ in photos]}
    done_file = args.out / "photos.json"
    if done_file.exists():
        facts = json.loads(done_file.read_text())
        if facts["made_of"] != made_of:
            sys.exit(f"photos: {args.out} holds another set: remove it or choose another --out")
        if facts["bytes"]:
            print(f"photos: {args.out} is complete", file=sys.stderr)
            return
    args.out.mkdir(parents=True, exist_ok=True)
    write_facts(done_file, made_of, 0, 1)

    jobs = plan(args, photos)
    progress, count, size = Progress("cut", args.count), 0, 0
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for crops, crop_bytes in pool.map(make_crops, jobs):
            count, size = count + crops, size + crop_bytes
            progress.show(count)
    if args.kind == "bench":
        write_tars(args, photos)
    write_facts(done_file, made_of, size, count)
    print(f"photos: {count:,} crops of {len(photos)} photographs, {size / count / 1000:.1f} kB "
          f"each, in {args.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
