#!/usr/bin/env python3
"""stoker.TokenLoader: windows of 2,049 tokens, shuffled over the whole set, as int64 tensors."""
import stoker

import common
import tokens_common


def open_stream(options):
    loader = stoker.TokenLoader(tokens_common.token_file(options), options.batch,
                                tokens_common.LENGTH, stride=tokens_common.STRIDE, labels=False,
                                stored="uint16", seed=options.seed, shuffle="full")
    while True:
        yield from loader


common.run("stoker", stoker.__version__, open_stream, modes=("tars",), check=tokens_common.check)
