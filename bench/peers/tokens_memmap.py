#!/usr/bin/env python3
"""numpy.memmap in the training process, as nanoGPT's get_batch has it: windows of a permutation,
each widened, then stacked. With --workers the same as a data set under torch's DataLoader."""
import numpy
import torch

import common
import tokens_common


def more_options(parser):
    parser.add_argument("--workers", type=int, default=0, help="processes of a DataLoader; 0: none")


class Windows(torch.utils.data.Dataset):
    def __init__(self, path):
        self.data = numpy.memmap(path, dtype=numpy.uint16, mode="r")

    def __len__(self):
        return (len(self.data) - tokens_common.LENGTH) // tokens_common.STRIDE + 1

    def __getitem__(self, number):
        at = number * tokens_common.STRIDE
        return torch.from_numpy(self.data[at : at + tokens_common.LENGTH].astype(numpy.int64))


def open_stream(options):
    windows = Windows(tokens_common.token_file(options))
    if options.workers:
        loader = torch.utils.data.DataLoader(windows, options.batch, shuffle=True, drop_last=True,
                                             num_workers=options.workers, persistent_workers=True)
        while True:
            yield from loader
    while True:
        order = torch.randperm(len(windows)).tolist()
        for first in range(0, len(order) - options.batch + 1, options.batch):
            yield torch.stack([windows[i] for i in order[first : first + options.batch]])


common.run("numpy.memmap", numpy.__version__, open_stream, modes=("tars",),
           check=tokens_common.check, more_options=more_options)
