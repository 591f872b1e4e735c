"""`relaxc probe`: what this cluster's links, all-reduce and codecs cost, measured by its own workers."""
