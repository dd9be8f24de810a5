"""The bytes and what they mean: frames, messages, record batches.

Sans-IO.  Nothing here opens a socket or a file, reads a clock or knows an event loop; bytes
come in, values go out, and the other way round.  A module imports only what stands above it:

    limits         every limit of the wire, in one place
    errors         the error table: code, name, retryable, meaning
    acls           operations, resources, patterns and permissions of access control
    primitives     unsigned varints and tag sections
    fields         what a field of a message can be, and in which versions
    source         a function under construction
    decoders       fields to a decoder
    encoders       fields to an encoder
    schema         a message is a typed class; its codecs are compiled from its fields
    foreign        other protocols, recognized by their first bytes
    frames         size-prefixed frames out of a byte stream
    messages_*     the Kafka messages, one module per area
    vendor         segbroker's own api keys, msgpack bodies
    api_keys       what each api key is, which versions are served
    headers        request and response headers, whole frames
    hot            produce and fetch of one partition, without objects
    tls_records    bytes cut as TLS wants them
    der            the encoding of certificates, to walk
    certificate_dates   until when a certificate is valid
    certificate_names   the subject of a certificate, as Java writes it
    sasl           the mechanisms' names; PLAIN
    scram          SCRAM: both sides, and what is stored instead of a password
    oauthbearer    OAUTHBEARER: the message with the token, and its refusal
    checksums      CRC-32C, XXH3-64
    compression    gzip, snappy, lz4, zstd, bounded
    batch_layout   what both kernels of the record batch share: positions, bits, faults
    batch_pure     the record batch in plain Python: the specification of the kernel
    batch_native   the same functions by the C kernel (native/), one call per batch
    kernel         picks the C kernel or its pure twin
    batch_header   the 61 bytes in front of the records: read, checked, patched
    batch_gaps     batches without records: which offsets are missing, and why
    record_batch   RecordBatch v2: encode, decode, columns, filter; the door to the two above
    produce_scan_pure   the plain Produce requests in what a receive brought: the specification
    produce_scan   ... by the C kernel where there is one
    markers        the control batch that ends a transaction in a partition
    partitioner    murmur2, as Java clients hash keys
    consumer_protocol   what consumers of a group tell each other, opaque to a broker
    pending_native handout_native record_native   inner loops of client/ by the C kernel
"""
