"""Who may do what, how often, and how much of it.

A module imports only what stands above it:

    acl_rules       a set of access rules, asked one question
    audit           what was denied, a line each
    authorizer      the question that every request is asked
    signing_keys    a JWK set: which keys may have signed a token
    key_reading     one reading of a JWK set, from an address or a file
    bearer_tokens   whom a token lets in, and until when
    key_source      where signing keys come from, and when they are read again
    authentication  who may log in
    quota_rules     which quota holds for whom
    quotas          how much a client has used
    closing_lines   what is told of connections that are closed
    address_limits  what an address may do before it has said anything
    listener_limits how many connections a listener takes, and how fast
"""
