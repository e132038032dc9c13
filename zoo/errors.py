"""What the zoo says to a person whose input it cannot use."""


class SpecError(ValueError):
    """A model specification that cannot be parsed, built, scaled or fitted."""
