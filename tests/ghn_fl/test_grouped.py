from collections.abc import Sequence
from dataclasses import replace

import torch

from ghn_fl.types import Answer, Job
from tests.ghn_fl.methods.bed import Bed


def test_grouped_fedavg_by_hand() -> None:
    # two clients of 1 and 3 samples that answer 0 and 4: the mean is 3
    bed = Bed("allsmall")
    one, three = (replace(c, samples=n) for c, n in zip(bed.clients, (1, 3), strict=False))

    def train(jobs: Sequence[Job]) -> list[Answer]:
        return [
            Answer(
                client=job.client,
                samples=job.client.samples,
                weights=(
                    {
                        n: torch.full_like(w, 4.0 * (job.client.samples == 3))
                        for n, w in job.models[0][1].items()
                    },
                ),
            )
            for job in jobs
        ]

    state, _ = bed.method.run_round(bed.method.init(), [one, three], train)
    assert all((w == 3).all() for w in state["models"]["lenet5-d1"].values())
