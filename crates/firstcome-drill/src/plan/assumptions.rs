//! The assumptions of the arithmetic, and when they fail.

/// Each assumption, and when it is wrong.
pub(crate) const ASSUMPTIONS: [(&str, &str); 7] = [
    (
        "The database connections are what runs out first.",
        "Processors, locks on hot rows, a payment provider or the network are slower: plan for them the same way, the smallest rate counts.",
    ),
    (
        "A query holds a connection for read-ms or write-ms on average, also under load.",
        "A transaction holds its connection between queries (count the whole transaction as one query), or queries get slower as more run at once: measure at the planned load.",
    ),
    (
        "Everybody makes the average number of queries, spread over the stay.",
        "All of them come in the first seconds after admission, or robots ask more: the wait for a connection has peaks; plan a lower utilisation.",
    ),
    (
        "Only admitted people use these connections.",
        "Other pages, jobs or reports share the pool: lower the utilisation by their share.",
    ),
    (
        "A slot is taken for the stay: the pass is released when a person is done.",
        "Passes are never released: a slot then lasts active_ttl_ms, and max_active admits only max_active ÷ active_ttl_ms; plan with --stay 30m.",
    ),
    (
        "All people of the day arrive within the spike, evenly, and none gives up.",
        "They come over hours (the line is shorter), or leave the line (it ends sooner); the rate that the back end carries does not depend on it.",
    ),
    ("Everybody who is admitted comes.", "Some do not: fewer people than the rate reach the back end, which is safe."),
];
