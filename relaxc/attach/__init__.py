"""The running side: a built plan on a training loop. Knows the manifest, the kernels' library and the pure schedule."""
