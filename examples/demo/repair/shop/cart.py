"""What a cart costs."""


def cents(price: float) -> int:
    """A price in euros as cents."""
    return int(price * 100)


def total(prices: list[float]) -> int:
    return sum(cents(price) for price in prices)
