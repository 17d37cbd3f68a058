"""Text in: every DATA form of the contract becomes a TextSet. No models here."""
