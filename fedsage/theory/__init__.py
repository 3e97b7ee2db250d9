"""The appendix of the paper: the kernel of infinitely wide GNNs and its bound; float64."""
