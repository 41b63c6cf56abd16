#!/usr/bin/env python3
"""stoker.TokenLoader, as int64 tensors: windows of 2,049 tokens, shuffled over the whole set, or
with --rows packed documents packed in rows of 2,048, with labels, positions and cu_seqlens."""
import stoker

import common
import tokens_common


def more_options(parser):
    parser.add_argument("--rows", choices=["windows", "packed"], default="windows")


def open_stream(options):
    if options.rows == "packed":
        loader = stoker.TokenLoader(tokens_common.document_set(options), options.batch,
                                    tokens_common.STRIDE, rows="packed", seed=options.seed)
    else:
        loader = stoker.TokenLoader(tokens_common.token_file(options), options.batch,
                                    tokens_common.LENGTH, stride=tokens_common.STRIDE,
                                    labels=False, stored="uint16", seed=options.seed,
                                    shuffle="full")
    while True:
        yield from loader


def check(batch, options):
    if options.rows == "windows":
        return tokens_common.check(batch, options)
    for name in ("input_ids", "labels", "position_ids"):
        shape, dtype = tuple(batch[name].shape), str(batch[name].dtype)
        assert (shape, dtype) == ((options.batch, tokens_common.STRIDE), "torch.int64"), shape
    return None


def rows_of(batch):
    return len(batch["input_ids"] if isinstance(batch, dict) else batch)


common.run("stoker", stoker.__version__, open_stream, modes=("tars",), check=check,
           count_of=rows_of, more_options=more_options)
