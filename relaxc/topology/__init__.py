"""Who mixes with whom: graphs as data, their mixing matrices, rounds.

`graphs` says who meets whom, `kinds` has the table of topologies and their rows, `weights` what a worker must know in a
round, `spectrum` how fast they mix, `drawing` a picture, `edges` and `arrows` the files of
`edges("file")` and `arrows("file")`. Pure Python, for all to
import; numpy only where spectra are computed.
"""
