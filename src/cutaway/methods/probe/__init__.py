"""probe: what information do the hidden states encode?"""
