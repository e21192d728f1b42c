"""From the candidates of a search to the one model that is written."""
