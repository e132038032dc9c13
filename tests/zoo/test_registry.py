import pytest

from zoo import Registry, SpecError


def test_duplicates_are_refused() -> None:
    registry: Registry[int] = Registry("method")
    registry.register("fedavg", 1)
    with pytest.raises(SpecError, match="method 'fedavg' is registered twice"):
        registry.register("fedavg", 2)
    assert registry["fedavg"] == 1


def test_unknown_names_get_the_close_ones_or_all() -> None:
    registry: Registry[int] = Registry("method")
    for name in ("fedprox", "fedavg"):
        registry.register(name, 0)
    assert registry.names() == tuple(registry) == ("fedavg", "fedprox")
    with pytest.raises(SpecError, match="unknown method 'FedAvgg'; did you mean 'fedavg'"):
        registry["FedAvgg"]
    with pytest.raises(SpecError, match="unknown method 'xyz'; known: fedavg, fedprox"):
        registry["xyz"]
    for number in range(100, 200):
        registry.register(str(number), 0)
    with pytest.raises(SpecError, match=r"known: 100, 101, .*, 139 and 62 more$"):
        registry["xyz"]
