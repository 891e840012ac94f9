"""Side-by-side measurements of jaxiter and its peers: `python -m benchmarks --help`."""
