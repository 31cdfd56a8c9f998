"""Facts and questions: typed events, the bus that carries them, the journal that keeps them, and redaction."""
