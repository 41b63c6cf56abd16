"""Shared by the peers of token batches: the set, its windows, and the checks of a batch."""
import pathlib

LENGTH, STRIDE = 2049, 2048


def token_file(options):
    """The set, made by records.py --kind tokens: uint16, nothing else."""
    return str(pathlib.Path(options.data) / "tokens.bin")


def document_set(options):
    """The same tokens as documents, in Megatron's form."""
    return str(pathlib.Path(options.data) / "documents")


def check(batch, options):
    shape, dtype = tuple(batch.shape), str(batch.dtype).rpartition(".")[2]
    assert (shape, dtype) == ((options.batch, LENGTH), "int64"), (shape, dtype)
