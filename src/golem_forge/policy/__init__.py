"""Policy: may a call run? Effects and rules become a verdict, a verdict becomes a question, an answer is remembered."""
