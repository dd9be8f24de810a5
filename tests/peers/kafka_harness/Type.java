package org.apache.kafka.common.test.api;

/** What kinds of clusters a test of theirs is for: here there is one. */
public enum Type { KRAFT, CO_KRAFT }
