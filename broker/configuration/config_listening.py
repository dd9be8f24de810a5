"""Where the broker is reached, and how a stranger becomes somebody: listeners, TLS, logins.

Keys of the configuration; config.py puts them together.
"""

from dataclasses import dataclass

from .config_key import DAY_MS, key


@dataclass(frozen=True)
class ListeningKeys:
    """See the module."""

    data: str = key("segbroker-data", "Directory of the log files. Made when missing.")
    listen: str = key(
        "127.0.0.1:9092",
        "host:port to listen on without TLS and passwords; port 0 takes a free one; [::1]:9092 for "
        "IPv6. Has no meaning where listeners is set.",
    )
    advertised: str = key(
        "",
        "host:port told to clients in Metadata. Empty: what is listened on, a name as that name; "
        "for 0.0.0.0 or [::] the address on which the client reached us. A port of 0 stands for "
        "the bound port.",
    )
    listeners: str = key(
        "",
        "Several listeners, as NAME://host:port with commas between. NAME is what protects it: "
        "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, or a name of listener_security_protocol_map.",
        kafka="listeners",
    )
    advertised_listeners: str = key(
        "",
        "host:port told to the clients of each listener, as NAME://host:port; for one that is not "
        "named as with an empty advertised.",
        kafka="advertised.listeners",
    )
    listener_security_protocol_map: str = key(
        "",
        "What protects listeners of other names, as NAME:PROTOCOL with commas between.",
        kafka="listener.security.protocol.map",
    )
    ssl_certificate: str = key(
        "",
        "PEM file with the certificate of the SSL and SASL_SSL listeners, and its chain. Read "
        "again, with the key and the CA, on SIGHUP and when one of the files has changed.",
        kafka="ssl.keystore.location",
        listener="tls",
    )
    ssl_key: str = key(
        "", "PEM file with its private key; empty: in ssl_certificate.", listener="tls"
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
        "Whether clients of SSL listeners have to show a certificate: none, requested (who has "
        "one) or required. Its subject is the client's name there.",
        choices=("none", "requested", "required"),
        kafka="ssl.client.auth",
        listener="tls",
    )
    ssl_version_min: str = key(
        "TLSv1.2",
        "Oldest version of TLS that is spoken.",
        choices=("TLSv1.2", "TLSv1.3"),
        listener="tls",
    )
    ssl_reload_interval_ms: int = key(
        10_000,
        "Pause between two looks at whether the files of the certificate have changed; 0: only on "
        "SIGHUP.",
        most=DAY_MS,
    )
    sasl_mechanisms: str = key(
        "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "How users of SASL listeners may log in. PLAIN sends the password itself: over TLS only.",
        kafka="sasl.enabled.mechanisms",
        dynamic=True,
        listener="login",
    )
    initial_user: str = key(
        "",
        "A user who is made at the start when there is none of this name, with initial_password. "
        "Its password is not changed by a restart.",
    )
    initial_password: str = key("", "See initial_user.", secret=True)
    scram_iterations: int = key(
        8_192,
        "Rounds of hashing for the password of initial_user.",
        least=4_096,
        most=16_384,
    )
    connections_max_reauth_ms: int = key(
        0,
        "A client of a SASL listener has to log in again after this time, or is closed when it "
        "asks for anything else; 0: never.",
        kafka="connections.max.reauth.ms",
        dynamic=True,
    )
    authentication_failure_delay_ms: int = key(
        250,
        "Who sends a wrong password waits so long for the answer.",
        most=10_000,
        kafka="connection.failed.authentication.delay.ms",
        dynamic=True,
    )
    handshakes_max: int = key(
        1_000,
        "Most connections in the middle of a TLS handshake or a login; beyond it the oldest of "
        "them is closed.",
        least=1,
        dynamic=True,
    )
