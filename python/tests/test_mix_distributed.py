"""A mix in real processes (gloo, and torchrun itself), killed, resized, with other weights in
between, sources that join, and each rule for those that are through: the ids are those of a loader
of one rank that nothing stopped."""

import os
import re

import mix_job
import pytest
from make import tar
from mix_job import CHANGED, JOINED, STEP, STEPS, WEIGHTS
from processes import Torchrun, check_lines, kill_and_resize, lines

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)

SIZES = {"a": 2000, "b": 1200, "c": 500, "d": 300}
CHANGE = 6  # the step after which weights change, with 3 ranks
HISTORY = ((2, 4), (3, 11), (1, None))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    for name, size in SIZES.items():
        tar(folder / f"{name}.tar", [(f"{name}{i:04}.txt", b"") for i in range(size)])
    return folder


def steps_of(folder, case, history, count):
    """The global batches of a run that had all weights at its start."""
    tars = [str(path) for path in sorted(folder.glob("*.tar"))][:count]
    want = []
    with mix_job.open_loader(tars, case, 1, history) as loader:
        while len(want) < STEPS:
            want += [batch["id"].tolist() for batch in loader]
    return want[:STEPS]


def changes_in(text):
    """The changes that the ranks got: positions of new weights and of a new source."""
    found = [re.findall(rf"{what} at (\d+)", text) for what in ("weights change", "source joins")]
    return [int(its[0]) if its and len(set(its)) == 1 else its for its in found]


@pytest.mark.parametrize("case", mix_job.CASES)
def test_killed_and_resized(tmp_path, sources, case):
    """2, 3 and 1 ranks; if the mix repeats, a source joins the last of them."""
    count = 4 if case == "repeat" else 3
    # Step 6 ends at 1,440. A frame of an epoch of 2,000 has 1,000 samples; without epochs, 1,020.
    border = 2000 if case == "repeat" else 2040
    history = [[0, WEIGHTS], [border, CHANGED]]
    if case == "repeat":
        history.append([border + 1000, JOINED])  # of a job at position 2,400
    want = steps_of(sources, case, history, count)
    assert want != steps_of(sources, case, history[:-1], count)
    kept = tmp_path / "kept"
    kill_and_resize(
        tmp_path,
        want,
        mix_job.__file__,
        sources,
        kept,
        case,
        CHANGE,
        lambda world: count if world == 1 else 3,
        history=HISTORY,
    )
    text = "".join(path.read_text() for path in tmp_path.glob("job*.rank*"))
    assert changes_in(text) == [border, border + 1000 if case == "repeat" else []]
    if case == "repeat":
        joined = sum(list(SIZES.values())[:3])
        assert max(max(step) for step in want[:12]) < joined
        assert all(max(step) >= joined for step in want[13:])
        return
    # An epoch ends when all of c was returned, after 160 each of b and c from 2,040 on; or b too.
    end = {"stop": 2040 + 320, "renormalise": 2040 + 320 + 360}[case]
    tars = [str(path) for path in sorted(sources.glob("*.tar"))][:3]
    with mix_job.open_loader(tars, case, 1, history) as loader:
        assert len(loader) == end // STEP < STEPS // 2 + 2


@pytest.mark.skipif(not os.environ.get("STOKER_TEST_LONG"), reason="for ./check --long")
def test_under_torchrun(tmp_path, sources):
    """torchrun itself, three times: a rank is killed, and so it ends."""
    history = [[0, WEIGHTS], [2000, CHANGED], [3000, JOINED]]
    want = steps_of(sources, "repeat", history, 4)
    kept, text = tmp_path / "kept", ""
    for world, stop_at in HISTORY:
        output, count = tmp_path / f"output{world}", 4 if world == 1 else 3
        arguments = [sources, kept, "repeat", CHANGE, count]
        with Torchrun(world, output, mix_job.__file__, *arguments, stop_at=stop_at) as agent:
            if stop_at is not None:
                agent.kill_where_it_stopped()
            assert (agent.wait() == 0) == (stop_at is None), output.read_text()
        text += output.read_text()
    check_lines(text, want)
    assert changes_in(text) == [2000, 3000] and "exitcode: -9" in text
    assert {world for _, _, world, _ in lines(text)} == {1, 2, 3}
