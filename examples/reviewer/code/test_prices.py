import unittest

from prices import discount, shipping


class PricesTest(unittest.TestCase):
    def test_ten_percent_off(self) -> None:
        assert discount(1000, 10) == 900

    def test_fifty_euros_are_shipped_for_free(self) -> None:
        assert shipping(5000) == 0


if __name__ == "__main__":
    unittest.main()
