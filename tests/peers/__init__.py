"""The suites of other people's clients, run against segbroker: `make peers`.

| suite | where it comes from | what runs |
|---|---|---|
| librdkafka | its C tests, in an npm package | a process and a fresh daemon per test |
| kafka-python | its integration tests, in its sdist | one pytest against one fresh daemon |
| franz-go | the tests of `pkg/kgo`, in its Go module | one process against one fresh daemon |
| kafka-go | the tests of its package, in its Go module | one process against one fresh daemon |
| confluent-kafka-go | its integration tests, in its Go module | two processes, one fresh daemon |
| sarama | its functional tests, in its Go module | one process, a daemon behind five proxies |
| rskafka | its integration tests, in its crate | a process a file, against one fresh daemon |
| samsa | its integration tests, in its crate | the same |
| krafka | its integration tests, in its crate | the same |
| goka | its system tests, in its Go module | one process against one fresh daemon |
| watermill | tests of watermill-kafka, in its Go module | one process against one fresh daemon |
| kafka | tests of Apache Kafka, in its test jar | a process a class, a fresh daemon per test |
| kafka-shares | tests of Apache Kafka's share groups, in its test jars | the same |
| kafka-streams | integration tests, in its test jar | a process and fresh daemons per class |
| kafka-streams-groups | those with the streams protocol, of a newer release | the same |
| kafka-connect | integration tests, in its test jars | the same |

Each has an allow list beside this file: the tests that pass.  A listed test that fails is an
error; a test that passes without being listed is told, so that the list can grow, and it may only
grow.  Tests that end well with an assertion that our harness meets, not the broker, have a list of
their own and are not counted as passed (verdicts.py).  What does not pass, and whose fault it is,
stands in docs/peers.md.

Packages come from the registries by their ordinary clients, with pinned versions, and are built
once into the user's cache directory.
"""
