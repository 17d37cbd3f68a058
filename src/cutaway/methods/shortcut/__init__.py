"""shortcut: is layer j a linear function of layer i, and can the model exit early?"""
