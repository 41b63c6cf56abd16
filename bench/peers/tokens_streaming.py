#!/usr/bin/env python3
"""mosaicml-streaming's StreamingDataset over MDS shards of the same windows, shuffled by its
default (py1e), as its documentation and LLM Foundry use it: in torch's DataLoader, here with
--workers processes, or 0: in this one. The shards are written once, beside the tokens."""
import os
import pathlib
import shutil

import numpy
import streaming
import torch

import common
import tokens_common


def more_options(parser):
    parser.add_argument("--workers", type=int, default=2, help="processes of the DataLoader")


def shards(options):
    """The folder of MDS shards, made if it is not there."""
    folder = pathlib.Path(options.data) / "mds"
    if folder.exists():
        return str(folder)
    part = folder.with_name(f"mds.{os.getpid()}")
    data = numpy.memmap(tokens_common.token_file(options), dtype=numpy.uint16, mode="r")
    columns = {"tokens": f"ndarray:uint16:{tokens_common.LENGTH}"}
    with streaming.MDSWriter(out=str(part), columns=columns) as writer:
        for at in range(0, len(data) - tokens_common.LENGTH + 1, tokens_common.STRIDE):
            writer.write({"tokens": numpy.array(data[at : at + tokens_common.LENGTH])})
    try:
        part.rename(folder)
    except OSError:
        shutil.rmtree(part)
    return str(folder)


class Windows(streaming.StreamingDataset):
    def __getitem__(self, number):
        return torch.from_numpy(super().__getitem__(number)["tokens"].astype(numpy.int64))


def open_stream(options):
    streaming.base.util.clean_stale_shared_memory()
    windows = Windows(local=shards(options), batch_size=options.batch, shuffle=True,
                      shuffle_seed=options.seed)
    more = {"persistent_workers": True} if options.workers else {}
    loader = torch.utils.data.DataLoader(windows, options.batch, drop_last=True,
                                         num_workers=options.workers, **more)
    while True:
        yield from loader


common.run("streaming", streaming.__version__, open_stream, modes=("tars",),
           check=tokens_common.check, more_options=more_options)
