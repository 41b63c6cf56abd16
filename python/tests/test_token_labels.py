"""Labels of tokens are as their name says: Transformers shifts `labels`, and not `targets`.

The oracle is a model that learns to count 0 1 2 ... 49 0 1 ...: if labels were shifted twice, or
not at all, it would continue 5 6 7 8 9 with 11 or 9 instead of 10.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
import stoker

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

COUNT, EOD, CONTEXT, STEPS = 50, 50, 16, 80
torch.set_num_threads(1)  # several threads wait for each other on a busy machine


class TinyModel(torch.nn.Module):
    """One layer of attention; its forward() has the signature and the shift of GPT2LMHeadModel."""

    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(COUNT + 1, 32)
        self.places = torch.nn.Embedding(CONTEXT, 32)
        self.layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(32, COUNT + 1)

    def forward(self, input_ids, labels=None, position_ids=None):
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1])
        mask = torch.nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
        x = self.layer(self.tokens(input_ids) + self.places(position_ids), mask, is_causal=True)
        logits = self.head(x)
        if labels is None:
            return logits
        return torch.nn.functional.cross_entropy(  # as transformers.loss.ForCausalLMLoss
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
        )


def small_gpt2():
    transformers = pytest.importorskip("transformers")
    try:
        kind, config = transformers.GPT2LMHeadModel, transformers.GPT2Config
    except Exception as error:  # transformers imports lazily, and fails with any exception
        pytest.skip(f"GPT2LMHeadModel cannot be imported: {error}")
    return kind(config(vocab_size=COUNT + 1, n_positions=CONTEXT, n_embd=32, n_layer=1, n_head=2))


def continued(model):
    """The model's prediction after 5 6 7 8 9."""
    with torch.no_grad():
        out = model(torch.tensor([[5, 6, 7, 8, 9]]))
    return int(getattr(out, "logits", out)[0, -1].argmax())


def batches(loader):
    while True:
        yield from loader


def learns(loader, model, loss_of):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for step, batch in enumerate(batches(loader)):
        if step == STEPS:
            return continued(model)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return None


def by_model(model, batch):
    """As a Trainer calls it."""
    names = {name: value for name, value in batch.items() if name != "cu_seqlens"}
    out = model(**names)
    return getattr(out, "loss", out)


def by_hand(model, batch):
    inputs, targets = batch.values() if isinstance(batch, dict) else batch
    out = model(inputs)
    scores = getattr(out, "logits", out)
    return torch.nn.functional.cross_entropy(
        scores.flatten(0, 1), targets.flatten(), ignore_index=-100
    )


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """The numbers in a row, and documents that begin anywhere: token files, and lines of JSON."""
    root = tmp_path_factory.mktemp("counting")
    numpy.save(root / "cycle.npy", (numpy.arange(100_000) % COUNT).astype(numpy.uint16))
    random = numpy.random.default_rng(1)
    documents = [
        [(first + i) % COUNT for i in range(length)]
        for first, length in zip(
            random.integers(0, COUNT, 4000), random.integers(8, 15, 4000), strict=True
        )
    ]
    joined = [token for document in documents for token in [*document, EOD]]
    numpy.save(root / "documents.npy", numpy.array(joined, numpy.uint16))
    for name, texts in (("documents", documents), ("cycle", [list(range(COUNT)) * 3] * 400)):
        lines = [json.dumps({"text": " ".join(map(str, text))}) + "\n" for text in texts]
        (root / f"{name}.jsonl").write_text("".join(lines))
    return root


def numbers(texts):
    return [[int(word) for word in text.split()] for text in texts]


def open_loader(kind, root, **options):
    torch.manual_seed(0)
    options = {"seed": 1, **options}
    name = "cycle" if options.get("rows", "windows") == "windows" else "documents"
    if name == "documents":
        options["eod"] = EOD
    if kind == "tokens":
        return stoker.TokenLoader(root / f"{name}.npy", 16, CONTEXT, **options)
    return stoker.TextLoader(root / f"{name}.jsonl", numbers, 16, CONTEXT, **options)


MODEL_CASES = {
    "named": {"rows": "windows", "names": ["input_ids", "labels"]},
    "model": {"rows": "windows", "names": ["input_ids", "labels"], "labels": "model"},
    "packed": {"rows": "packed"},
    "positions": {"rows": "windows", "positions": "row"},
    "padded": {"rows": "padded", "names": ["input_ids", "labels"]},
}
HAND_CASES = {
    "pairs": {"rows": "windows"},
    "targets": {"rows": "windows", "names": ["input_ids", "targets"]},
    "shift_labels": {"rows": "windows", "names": ["input_ids", "shift_labels"]},
    "shifted": {"rows": "windows", "labels": "shifted"},
    "padded": {"rows": "padded"},
}


@pytest.mark.parametrize("kind", ["tokens", "text"])
@pytest.mark.parametrize("name", MODEL_CASES)
def test_a_model_that_shifts_learns_to_count(counting, kind, name):
    with open_loader(kind, counting, **MODEL_CASES[name]) as loader:
        assert learns(loader, TinyModel(), by_model) == 10


@pytest.mark.parametrize("kind", ["tokens", "text"])
@pytest.mark.parametrize("name", HAND_CASES)
def test_a_loop_with_targets_learns_to_count(counting, kind, name):
    with open_loader(kind, counting, **HAND_CASES[name]) as loader:
        assert learns(loader, TinyModel(), by_hand) == 10


@pytest.mark.parametrize("kind", ["tokens", "text"])
def test_gpt2_of_transformers_learns_to_count(counting, kind):
    model = small_gpt2()
    with open_loader(kind, counting, rows="windows", names=["input_ids", "labels"]) as loader:
        assert learns(loader, model, by_model) == 10
    with open_loader(kind, counting, **MODEL_CASES["packed"]) as loader:
        assert learns(loader, small_gpt2(), by_model) == 10
    with open_loader(kind, counting, rows="windows") as loader:
        assert learns(loader, small_gpt2(), by_hand) == 10


def test_shifted_labels_are_never_called_labels(counting):
    for rows in ("windows", "packed", "padded"):
        with pytest.raises(stoker.ArgumentError, match="targets"):
            names = ["input_ids", "labels", "position_ids", "cu_seqlens"]
            names = names if rows == "packed" else names[:2]
            open_loader("text", counting, rows=rows, names=names, labels="shifted")
    with open_loader("text", counting, rows="packed", labels="shifted") as loader:
        assert list(next(iter(loader))) == ["input_ids", "targets", "position_ids", "cu_seqlens"]
    with pytest.raises(stoker.ArgumentError, match="'model' or 'shifted'"):
        open_loader("tokens", counting, labels="both")


def test_unshifted_labels(tmp_path):
    """Windows: equal to the inputs. Documents: -100 at the first token of each, and in padding."""
    numpy.array([3, 4, 5, 0, 6, 7, 0, 8, 9, 1, 2, 0], "uint16").tofile(tmp_path / "a.bin")
    options = {"shuffle": "none", "tail": "keep", "stored": "uint16", "output": "numpy"}
    with stoker.TokenLoader(
        tmp_path / "a.bin", 2, 5, names=["input_ids", "labels"], **options
    ) as loader:
        (batch,) = loader
        assert batch["input_ids"].tolist() == [[3, 4, 5, 0, 6], [7, 0, 8, 9, 1]]
        assert batch["labels"].tolist() == batch["input_ids"].tolist()
    with stoker.TokenLoader(
        tmp_path / "a.bin", 2, 8, rows="packed", eod=0, pad=9, **options
    ) as loader:
        (batch,) = loader
        kept = batch["labels"] != -100
        assert (batch["labels"][kept] == batch["input_ids"][kept]).all()
        assert batch["position_ids"].shape == (2, 8)
        first = batch["position_ids"] == 0
        assert (batch["labels"][first] == -100).all()
        assert kept.sum() == 12 - 3  # each token but the first ones
    with stoker.TokenLoader(
        tmp_path / "a.bin", 3, 6, rows="padded", eod=0, labels="model", mask_ends=False, **options
    ) as loader:
        (pair,) = loader
        assert pair[1][1].tolist() == [6, 7, 0, -100, -100, -100]


@pytest.mark.parametrize("kind", ["tokens", "text"])
def test_arguments_of_flash_attention(counting, kind):
    """As DataCollatorWithFlattening(return_flash_attn_kwargs=True) names and types them."""
    options = {"rows": "packed"}
    with open_loader(kind, counting, shuffle="none", flash_attention=True, **options) as loader:
        batch = next(iter(loader))
    with open_loader(kind, counting, shuffle="none", **options) as loader:
        plain = next(iter(loader))
    assert "cu_seqlens" not in batch
    for name in ("cu_seq_lens_q", "cu_seq_lens_k"):
        assert batch[name].dtype == torch.int32
        assert torch.equal(batch[name], plain["cu_seqlens"])
    assert batch["cu_seq_lens_q"][-1] == batch["input_ids"].numel()
    longest = int(batch["cu_seq_lens_q"].diff().max())
    assert batch["max_length_q"] == batch["max_length_k"] == longest
    assert type(batch["max_length_q"]) is int
    with pytest.raises(stoker.ArgumentError, match="packed"):
        open_loader(kind, counting, rows="padded", flash_attention=True)


def test_the_state_tells_both_kinds_of_labels_apart(counting):
    with open_loader("tokens", counting) as shifted:
        state = shifted.state_dict()
    with open_loader("tokens", counting, labels="model") as loader:
        with pytest.raises(stoker.StateError, match="labels"):
            loader.load_state_dict(state)
    with open_loader("text", counting, rows="padded") as shifted:
        state = shifted.state_dict()
    with open_loader("text", counting, rows="padded", labels="model") as loader:
        with pytest.raises(stoker.StateError, match="labels: True in the state, 'model' here"):
            loader.load_state_dict(state)


def test_the_example_trains_with_the_trainer(counting, tmp_path):
    """examples/hf_trainer_text.py ends, and its model counts on."""
    small_gpt2()
    example = pathlib.Path(__file__).resolve().parents[2] / "examples" / "hf_trainer_text.py"
    command = [sys.executable, str(example), str(counting / "cycle.npy"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert "after 5 6 7 8 9: 10" in done.stdout, done.stdout + done.stderr
