"""The web app: widgets around report figures, nothing computed here."""
