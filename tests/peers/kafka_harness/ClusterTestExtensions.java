package org.apache.kafka.common.test.junit;

import org.junit.jupiter.api.extension.Extension;

/** Named by some classes of tests; each of their tests has its extension by its marker. */
public class ClusterTestExtensions implements Extension { }
