"""Tables, statistics and figures."""
