package org.apache.kafka.common.test.api;

/** Whether a test wants its cluster running when it begins. */
public enum AutoStart { YES, NO, DEFAULT }
