"""The policy in a new owner's kit; also the default for missing lines."""

TEXT = """\
# What runs may ask of this owner. Only what this file allows is done; a run that asks for more
# is refused before any of your data is used, and the refusal names the line of this file.
# Edit and save: the next run is checked against it. If you delete a line, fedsage's default
# applies, not "anything".

# Kinds of runs. A Python file that you allowed ('fedsage federation allow') can take the place
# of any of them. What each one sends is in docs/security.md.
methods = ["fedsage", "fedsage+"]
presets = ["paper", "best"]
# "links" lets other owners find out which of your nodes they have links to, and gives them sums
# of features: add it if you want that (docs/known-links.md).
mending = ["none", "copy", "classes", "subspace", "neighgen", "shared"]
backbones = ["graphsage", "ensemble", "mix", "gcn", "gat", "propagate"]
rules = ["mean", "median", "trimmed-mean", "krum"]
messages = ["full", "whole", "low-rank"]
# Forms of features. unit and auto need a few sums over all your nodes. "tfidf" tells the server
# in how many nodes of all owners together each word occurs: add it if you want that.
features = ["raw", "unit", "root", "log", "auto"]
# How owners who mend by links find each other's nodes. By "hashes" an owner can check guesses
# at your links: add it if both ends know every link anyway, as of payments.
matching = ["intersection"]

# Who may read your replies. open: the server sees each owner's replies. sums: it sees only
# their sum over all owners. private: that sum has noise, which bounds what a run tells about
# any one node (docs/privacy.md). Kits for three or more owners come without "open": add it for
# runs that sums cannot do (the preset paper, rules that compare owners).
privacy = ["open", "sums", "private"]

[unasked]
# What you take part in without being asked, of all that this file allows. A run that one of
# these lines does not cover waits for your decision: 'fedsage federation approve' shows what
# would leave. As it stands, you are asked about every run. ["any"] covers whatever is allowed.
# Methods with their way of mending, e.g. ["fedsage", "fedsage+subspace"].
methods = []
presets = ["paper", "best"]
privacy = ["sums", "private"]
# Python files that you allowed, by SHA-256.
files = []
# Beyond this many runs in 24 hours you are asked, whatever the lines above say.
runs_a_day = 4

[budget]
# The most that all private runs together, of all time, may tell about one node: ε at this δ.
# What was spent is in fedsage/spent.jsonl of this kit. A run beyond the budget is refused. What
# was told cannot be taken back: raise ε only if you mean it.
epsilon = 10
delta = 1e-5

[fewest]
# What leaves is a sum or a mean over your nodes. Over few nodes it would reveal single ones.
training_nodes = 50
validation_nodes = 30
# With fewer test nodes than this you take part, but nothing is told about them.
test_nodes = 8
# Owners that a run must have, and must keep if some fail. With two, each can work out what
# the other sent.
owners = 2

[most]
# The same question, asked often with small differences, reveals what one answer hides. A run
# that was stopped and continues is not a new one, but it may not start forever.
runs_a_day = 24
rounds_a_month = 20000
starts_of_a_run = 20
# Megabytes that runs may take in this kit. Before a run begins, the oldest ones that ended are
# removed until there is less; what left your site stays on record.
disk_mb = 20000

[ranges]
# Every number in the settings: the smallest and the largest that you accept.
# Shares of your labelled nodes used for training, and for choosing the best round.
data.train = [0.1, 0.8]
data.val = [0.05, 0.5]
data.owners = [1, 10000]
data.missing_features = [0, 0]  # a graph is made worse in simulations alone
data.missing_links = [0, 0]
data.few_labels = [0, 0]
data.noisy_labels = [0, 0]
# The classifier: many or wide layers can memorize more of your data, and need more memory.
model.widths = [4, 2048]
model.dropout = [0, 0.9]
model.heads = [1, 16]
model.ensemble = [1, 16]
model.steps = [1, 100]
model.teleport = [0, 1]
model.share = [0, 1]
# Its training: a step over few nodes, or from few neighbors, reveals more of each.
classifier.rounds_c = [1, 1000]
classifier.local_epochs = [1, 20]
classifier.small_epochs = [1, 20]
classifier.batch_size = [16, 65536]
classifier.min_steps = [1, 100]
classifier.fanouts = [2, 100]
classifier.eta = [1e-6, 1]
classifier.eta_whole = [0, 1]
classifier.cooling = [0, 1]
# Self-training also trains on nodes without a training label, whatever they are held back for.
classifier.self_training = [0, 0]
classifier.weight_decay = [0, 0.1]
classifier.patience = [0, 1000]
# Mending by a subspace of that rank, or with that many neighbors for a node.
mend.rank = [1, 256]
mend.leaves = [1, 20]
# Mending by links to other owners: the fewest nodes that are summed together.
links.at_least = [2, 1000]
links.share = [0, 1]
# Mending by NeighGen: how long, how much is hidden, over how many rows it answers.
neighgen.rounds_gen = [1, 500]
neighgen.hide_ratio = [0.05, 0.5]
neighgen.batch_size = [12, 65536]
neighgen.min_batch = [8, 65536]
neighgen.local_steps = [1, 20]
neighgen.eta = [1e-6, 1]
neighgen.alpha = [0, 100]
neighgen.lambda_d = [0, 100]
neighgen.lambda_f = [0, 100]
neighgen.lambda_c = [0, 100]
neighgen.widths = [4, 1024]
neighgen.hidden = [4, 1024]
neighgen.noise = [0, 100]
neighgen.at_least = [0, 20]
neighgen.at_most = [1, 20]
neighgen.partners = [0, 10000]
neighgen.memory_mb = [1, 4096]
# Messages: how much of each layer's change is sent, and how precisely.
traffic.rank = [1, 64]
traffic.bits = [8, 16]
traffic.every = [1, 1000]
traffic.feedback = [0, 1]
# Private runs: what one run may tell about one node. See also [budget].
privacy.epsilon = [0.01, 8]
privacy.delta = [1e-12, 1e-4]
privacy.rate = [0.001, 1]
# Your machine.
run.threads = [1, 64]
run.workers = [1, 64]
federation.deadline = [1, 604800]
federation.wait = [0, 2592000]
federation.min_owners = [0, 10000]
"""
