"""Prices in cents."""


def discount(price: int, percent: int) -> int:
    """The price after a discount."""
    return price - price * percent // 100


def shipping(total: int) -> int:
    """Orders of 50 euros and more are shipped for free."""
    return 0 if total > 5000 else 490
