"""User interfaces. They take events off the bus and put answers on it; nothing but `cli` imports them."""
