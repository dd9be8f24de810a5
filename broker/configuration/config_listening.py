"""Where the broker is reached, and how a stranger becomes somebody: listeners, TLS, logins.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass

from .config_key import DAY_MS, key


@dataclass(frozen=True)
class ListeningKeys:
    """See the module."""

    data: str = key("segbroker-data", "Data directory. Created if it does not exist.")
    listen: str = key(
        "127.0.0.1:9092",
        "Address to listen on, host:port, without TLS or login. Port 0: any free port. IPv6: "
        "[::1]:9092. Ignored if listeners is set.",
    )
    advertised: str = key(
        "",
        "Address that clients are told to connect to, host:port. Empty: that of listen, a host "
        "name as that name; for 0.0.0.0 or [::] the address on which the client reached the "
        "broker. Port 0: the port that was bound.",
    )
    listeners: str = key(
        "",
        "Several listeners: NAME://host:port, separated by commas. NAME is a protocol (PLAINTEXT,"
        " SSL, SASL_PLAINTEXT, SASL_SSL) or a name of listener_security_protocol_map.",
        kafka="listeners",
    )
    advertised_listeners: str = key(
        "",
        "Addresses that the clients of each listener are told to connect to: NAME://host:port, "
        "separated by commas. For a listener that is not named: as with an empty advertised.",
        kafka="advertised.listeners",
    )
    listener_security_protocol_map: str = key(
        "",
        "Protocols of listeners with other names: NAME:PROTOCOL, separated by commas.",
        kafka="listener.security.protocol.map",
    )
    ssl_certificate: str = key(
        "",
        "PEM file with the certificate of the SSL and SASL_SSL listeners and its chain. Read "
        "again, with the key and the authorities, on SIGHUP and when one of the files has "
        "changed.",
        kafka="ssl.keystore.location",
        listener="tls",
    )
    ssl_key: str = key(
        "", "PEM file with the private key. Empty: the key is in ssl_certificate.", listener="tls"
    )
    ssl_key_password: str = key(
        "",
        "Password of the private key, if it has one.",
        kafka="ssl.key.password",
        secret=True,
        listener="tls",
    )
    ssl_ca: str = key(
        "",
        "PEM file with the authorities that may sign certificates of clients.",
        kafka="ssl.truststore.location",
        listener="tls",
    )
    ssl_client_auth: str = key(
        "none",
        "Whether clients have to present a certificate: none, requested (they may) or required. "
        "On SSL listeners its subject is the client's principal.",
        choices=("none", "requested", "required"),
        kafka="ssl.client.auth",
        listener="tls",
    )
    ssl_principal_mapping_rules: str = key(
        "DEFAULT",
        "Which user the subject of a client's certificate is, on SSL listeners: rules "
        "RULE:pattern/replacement/ (L or U behind it: in small letters, in capitals) or DEFAULT, "
        "separated by commas; the first that matches.",
        kafka="ssl.principal.mapping.rules",
        listener="tls",
    )
    ssl_version_min: str = key(
        "TLSv1.2",
        "Lowest version of TLS that is accepted.",
        choices=("TLSv1.2", "TLSv1.3"),
        listener="tls",
    )
    ssl_reload_interval_ms: int = key(
        10_000,
        "How often the broker checks whether the files of the certificate have changed. 0: only "
        "on SIGHUP.",
        most=DAY_MS,
    )
    sasl_mechanisms: str = key(
        "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "Login mechanisms of SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. "
        "PLAIN and OAUTHBEARER send the password or token itself: use them over TLS only.",
        kafka="sasl.enabled.mechanisms",
        dynamic=True,
        listener="login",
    )
    initial_user: str = key(
        "",
        "A user that is created at the start, with initial_password, if there is no user of this "
        "name. A restart does not change the password.",
    )
    initial_password: str = key("", "Password of initial_user.", secret=True)
    scram_iterations: int = key(
        8_192,
        "Hash iterations for the password of initial_user.",
        least=4_096,
        most=16_384,
    )
    connections_max_reauth_ms: int = key(
        0,
        "Clients of SASL listeners have to log in again within this time; a connection that sends"
        " any other request later is closed. 0: never. A login by a token lasts no longer than the "
        "token, in any case.",
        kafka="connections.max.reauth.ms",
        dynamic=True,
    )
    authentication_failure_delay_ms: int = key(
        250,
        "Delay of the answer to a wrong password or token.",
        most=10_000,
        kafka="connection.failed.authentication.delay.ms",
        dynamic=True,
    )
    handshakes_max: int = key(
        1_000,
        "Maximum number of connections in a TLS handshake or a login. Beyond it one of the "
        "address that has most of them is closed: the oldest that keeps the broker waiting, or "
        "else the youngest.",
        least=1,
        dynamic=True,
    )
