from collections import Counter

from ghn_fl.simulation.config import RunConfig
from ghn_fl.simulation.fleet import Tier
from ghn_fl.simulation.sample import missing, sample
from ghn_fl.types import Client, Job, Recipe
from zoo import ModelSpec


def clients(**tiers: int) -> list[Client]:
    names = [name for name, count in tiers.items() for _ in range(count)]
    model = (ModelSpec(family="lenet5"),)
    return [
        Client(id=i, tier=name, models=model, samples=1, share=0.1, mix=(1.0,))
        for i, name in enumerate(names)
    ]


def test_stratified_sampling_takes_every_tier_in_proportion() -> None:
    # 10 of 100 with 90 weak: exactly 9 weak in every round; 4 of (7, 2, 1): 2.8, 0.8, 0.4
    fleet = clients(strong=10, weak=90)
    config = RunConfig(stratified=True, sample=10)
    rounds = [sample(fleet, config, number) for number in range(1, 6)]
    assert all(Counter(c.tier for c in r) == {"strong": 1, "weak": 9} for r in rounds)
    assert len({tuple(c.id for c in r) for r in rounds}) == 5
    uneven = sample(clients(a=7, b=2, c=1), RunConfig(stratified=True, sample=4), 1)
    assert Counter(c.tier for c in uneven) == {"a": 3, "b": 1}


def test_the_sample_is_of_distinct_clients_in_order() -> None:
    for stratified in (False, True):
        ids = [
            c.id
            for c in sample(
                clients(strong=2, weak=30), RunConfig(stratified=stratified, sample=20), 3
            )
        ]
        assert ids == sorted(set(ids)) and len(ids) == 20
        assert ids == [
            c.id
            for c in sample(
                clients(strong=2, weak=30), RunConfig(stratified=stratified, sample=20), 3
            )
        ]


def test_a_deadline_counts_the_samples_that_a_recipe_asks_for() -> None:
    spec, config = ModelSpec(family="lenet5"), RunConfig(epochs=5, client_deadline=1.0)
    tier = Tier(name="weak", count=1, model=spec, share=1.0, speed=100.0)
    client = Client(id=0, tier="weak", models=(spec,), samples=400, share=1.0, mix=(1.0,))

    def needs(*recipes: Recipe) -> str:
        models = ((spec, {}),) * max(1, len(recipes))
        reason = missing(Job(client=client, models=models, recipes=recipes), tier, config, 1)
        return reason.partition(",")[0]

    assert needs() == "needs 20.0 s"  # 400 * 5 / 100
    assert needs(Recipe(epochs=2)) == "needs 8.0 s"
    assert needs(Recipe(epochs=50, steps=5)) == "needs 6.4 s"  # 5 batches of 128
    assert needs(Recipe(epochs=1, steps=50)) == "needs 4.0 s"  # its data are through before
    assert needs(Recipe(epochs=1), Recipe(steps=5)) == "needs 10.4 s"
