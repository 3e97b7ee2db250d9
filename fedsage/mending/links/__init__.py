"""Links that owners do know: a neighbor for each, with the mean features of a small group.

Owners find out by private set intersection whose nodes their links lead to, and ask each other
for sums. All of it is in letters that the server cannot read, and no sum shows a single row.

| file | what is in it |
|---|---|
| ``steps`` | the exchange from beginning to end: what each owner does in turn |
| ``matching`` | what an owner has in hand during the exchange: ids, sums asked for |
| ``far_ends`` | the remote nodes that an owner has links to, and whose they turn out to be |
| ``shared_nodes`` | nodes that several owners hold |
| ``summed_rows`` | what of a row is summed, so that rows of a sum cannot be told apart |
| ``groups`` | which remote nodes are summed together |
| ``contributions`` | what an owner adds to another's sums: checked, in integers, masked |
| ``shown_so_far`` | what it has shown in this run, so that no two sums show a difference |
| ``memory`` | the same over all runs, on disk |
| ``received`` | what an owner got: means, looked up by a remote node's id |
| ``likely_rows`` | what a single row may be, guessed from a sum and the receiver's own nodes |
| ``leaves`` | what is attached: such rows, in the run and to nodes that come after it |
"""

from fedsage.mending.links.steps import by_links

__all__ = ["by_links"]
