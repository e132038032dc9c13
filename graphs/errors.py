"""What this package says to a person whose model, example or file it cannot use."""


class GraphError(ValueError):
    """A model that cannot be traced, or a graph that cannot be read or used."""
