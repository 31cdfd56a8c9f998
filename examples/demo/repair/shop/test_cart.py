import unittest

from cart import total


class CartTest(unittest.TestCase):
    def test_an_empty_cart(self) -> None:
        assert total([]) == 0

    def test_two_round_prices(self) -> None:
        assert total([5.00, 2.50]) == 750

    def test_three_mugs(self) -> None:
        assert total([19.99, 19.99, 19.99]) == 5997


if __name__ == "__main__":
    unittest.main()
