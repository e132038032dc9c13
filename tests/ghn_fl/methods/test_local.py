"""Local's own rules, beyond the contract of all methods."""

from __future__ import annotations

from ghn_fl import RunConfig, run
from ghn_fl.tree import equal
from ghn_fl.types import Job
from tests.ghn_fl.methods.bed import Bed
from tests.ghn_fl.methods.stubs import counted, only


def test_everybody_goes_on_from_his_own_weights() -> None:
    bed, jobs = Bed("local"), list[Job]()
    values = {0: (1.0, 1), 1: (-2.0, 3)}
    one, _ = bed.method.run_round(bed.method.init(), bed.clients[:2], counted(values, jobs))
    two, _ = bed.method.run_round(one, bed.clients[:3], counted(values | {2: (5.0, 1)}, jobs))
    assert [only(job.models[0][1]) for job in jobs[2:4]] == [1.0, -2.0]
    initial = jobs[1].models[0][1]  # of a weak client's model
    assert equal(dict(jobs[4].models[0][1]), dict(initial))
    served = bed.method.personalize(two, bed.clients)
    assert [only(w) for w in served[:3]] == [1.0, -2.0, 5.0]
    assert equal(dict(served[3]), dict(initial))  # has not trained yet


def test_the_others_change_nothing_for_a_client() -> None:
    bed = Bed("local")
    together, alone = bed.method.init(), bed.method.init()
    for number in (1, 2):
        together, _ = bed.method.run_round(together, bed.clients, bed.train(number))
        alone, _ = bed.method.run_round(alone, bed.clients[1:2], bed.train(number))
    assert list(alone) == ["clients"] and list(alone["clients"]) == ["1"]  # the server has nothing
    assert equal(together["clients"]["1"], alone["clients"]["1"])


def test_nothing_travels() -> None:
    settings = {"dataset": "synthetic", "skew": "1:3", "rounds": 2, "sample": 3, "epochs": 1}
    silent = run(RunConfig(method="local", **settings), workers=1)  # type: ignore[arg-type]
    assert silent.summary["bytes_down"] == silent.summary["bytes_up"] == 0
    talking = run(RunConfig(method="exclusivefl", **settings), workers=1)  # type: ignore[arg-type]
    assert talking.summary["bytes_down"] == talking.summary["bytes_up"] > 0
