#!/usr/bin/env python3
"""stoker without decoding: a member's bytes, as views of the batch or as Python bytes."""
import stoker

import common

used = {}


def more_options(parser):
    parser.add_argument("--extension", default="jpg", help="of the member that is read")
    parser.add_argument("--shuffle", default="block", help="block, full or none")
    parser.add_argument("--direct", default="auto", help="O_DIRECT: auto, never or always")
    parser.add_argument("--give", choices=["views", "bytes"], default="views")


def open_stream(options):
    engine = stoker.Engine(threads=options.threads or None, direct=options.direct)
    loader = stoker.Loader(str(options.data / "tars/*.tar"), batch_size=options.batch,
                           seed=options.seed, shuffle=options.shuffle, engine=engine,
                           batches_ahead=options.ahead or None,
                           fields={"data": stoker.Bytes(options.extension)})
    used["loader"], used["bytes"], used["samples"] = loader, 0, 0
    epoch = 0
    while True:
        loader.set_epoch(epoch)
        for batch in loader:
            data = batch["data"]
            samples = list(data) if options.give == "views" else data.tolist()
            used["bytes"] += sum(map(len, samples))
            used["samples"] += len(samples)
            yield samples
        epoch += 1


def check(samples, options):
    wanted = memoryview if options.give == "views" else bytes
    assert len(samples) == options.batch and all(type(each) is wanted for each in samples)


def notes():
    return {**used["loader"].stats(), "bytes_a_sample": used["bytes"] / used["samples"]}


common.run("stoker", stoker.__version__, open_stream, modes=("tars",), check=check, notes=notes,
           more_options=more_options)
