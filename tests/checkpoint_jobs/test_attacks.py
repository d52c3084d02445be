"""Jobs under attack: hostile requests, while a thread swaps folders, files, links, FIFOs and sizes of what they name.

Nothing outside of the roots is read or written, no answer is a 500, no job ends by an error that nobody expected, and
all end. `python -m tests.checkpoint_jobs --seed ... --requests 100000` is the long form.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from requant.checkpoint.storage import paths
from tests.checkpoint_jobs.attacker import Attacker
from tests.checkpoint_jobs.campaign import campaign
from tests.checkpoint_jobs.places import make_places
from tests.checkpoint_jobs.requests import HostileRequests

# Python warns of `[[` in an expression, whose meaning may change. Only pytest makes that an error.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def test_a_sample(tmp_path: Path) -> None:
    outcome = campaign(tmp_path, "sample", 600, seconds=60)
    assert not outcome.findings, outcome.summary()
    # Jobs were among them, and were disturbed.
    assert outcome.statuses[202], outcome.summary()
    assert outcome.swaps, outcome.summary()


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["attacked", "attacked, without openat2", "quiet"])
def test_the_seed_of_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if "without" in way:
        monkeypatch.setattr(paths, "_kernel_opens_beneath", lambda: False)
    seed = f"{datetime.datetime.now(datetime.UTC).date()} {way}"
    outcome = campaign(tmp_path, seed, 1_500, attack=way != "quiet", seconds=60)
    assert not outcome.findings, f"seed {seed}: {outcome.summary()}"


def test_what_was_touched_is_noticed(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    assert not places.touched()
    assert not list(places.leaks())
    secret = places.outside / "source" / "tokenizer.json"
    data = secret.read_bytes()
    assert places.touched() == [f"{secret} was touched"]
    (places.root / "copy").write_bytes(data)
    assert list(places.leaks()) == [str(places.root / "copy")]
    (places.outside / "new" / "x").touch()
    assert f"{places.outside}/new/x is new" in places.touched()


def test_the_same_seed_gives_the_same_requests(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    first, second = (HostileRequests(places, "http://h/models", "seed") for _ in range(2))
    assert [first.request(number) for number in range(300)] == [second.request(number) for number in range(300)]


def test_the_attacker_leaves_what_it_swaps(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    (places.root / "out" / "a").mkdir(parents=True)
    before = sorted(path.name for path in (places.root / "source").iterdir())
    with Attacker(places) as attacker:
        while attacker.swaps < 50:
            attacker.wait(0.01)
    assert sorted(path.name for path in (places.root / "source").iterdir()) == before
    assert not (places.root / "source").is_symlink()
    assert not places.touched()
