"""What uses several methods: the tour, paper reproductions, the Live page, imported logs."""
