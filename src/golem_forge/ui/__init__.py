"""What people see and answer with. Takes events off the bus, puts answers on it; nothing but `cli` imports it."""
