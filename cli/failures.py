"""An expected error becomes one sentence, a hint where there is one, and an exit code.

    Error: topic 'flights' does not exist
    Hint: create it: segbroker topic create flights

Each room has its own errors; this is the one place that knows all of them.  The modules are looked
up in sys.modules: a room that was never imported raised nothing, and `segbroker version` must not
import the client to say that all went well.

None from `explain` means "not expected": a bug, and the traceback is wanted.
"""

import errno
import os
import pwd
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from segbroker.protocol.limits import TOPIC_NAME_SIZE_MAX

from .exit_codes import ExitCode
from .standard_error import say

LOCAL = ("127.", "localhost", "[::1]")
SEVERAL_MAX = 5
# What a listener does with a client that speaks without TLS, or asks before it has logged in.
_SILENT = ("no answer", "did not answer")
_TLS_FILES = "the files for TLS cannot be used"
_TELLS_CLIENTS = {"listen": "advertised", "listeners": "advertised_listeners"}
_NO_TLS = "closed during the TLS handshake"
_IN_THE_LOGIN = "in the login, without an answer"
_NO_THREAD = "can't start new thread"  # Python's words
_NO_DESCRIPTOR = {
    errno.EMFILE: "the limit of file descriptors is reached: LimitNOFILE, ulimit -n",
    errno.ENFILE: "the limit of file descriptors of the machine is reached: fs.file-max",
}
# What a call is refused with that is about no file.
_NO_CALL = (errno.EPERM, errno.ENOSYS)
# What a file system answers that cannot lock or sync a file: a network's, or a program's.
_NOT_OFFERED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_SHORT = (*_NO_DESCRIPTOR, errno.ENOMEM, errno.EIO)  # of what a file itself is not to blame for
_NOT_REACHED = "could not be reached"
_NO_PORT = os.strerror(errno.EADDRNOTAVAIL)
_HUNG_UP = ("closed the connection", "Connection reset by peer")


_NO_TOPIC_SETTING = re.compile(r"([^\s=]+)=.*: there is no such topic setting$")
_TOPIC_SETTINGS = "segbroker topic describe NAME --verbose lists them"
_NO_GROUP_SETTING = "there is no group setting"
_NO_BROKER_SETTING = "there is no broker setting"
_OF_BROKER = "settings of broker"
_COLLIDES = "collides with existing topic"  # Kafka's words
STOP_THEM = "stop its consumers first"
NOT_SERVED_HINT = "segbroker broker status says what is wrong with the partition"
GROUP_SETTINGS_HINT = "segbroker group settings {name} lists them"
BROKER_SETTINGS_HINT = "segbroker broker describe --all lists them"


class Failure(Exception):
    """What the person reads instead of a traceback."""

    def __init__(self, message: str, code: ExitCode, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint

    def show(self) -> None:
        say(click.style("Error: ", fg="red", bold=True) + str(self))
        if self.hint:
            say(click.style("Hint: ", fg="cyan") + self.hint)


def explain(error: BaseException, params: Mapping[str, Any]) -> Failure | None:
    """The Failure for an expected error; None for a bug.

    Args:
        params: the command's own parameters, for hints that can be pasted.
    """
    error = innermost(error)
    if isinstance(error, BaseExceptionGroup):
        return _several(error, params)
    if isinstance(error, Failure):
        return error
    for explain_kind in (_client, _broker_config, _storage, _protocol, _system, _short_of):
        failure = explain_kind(error, params)
        if failure is not None:
            return failure
    return None


def innermost(error: BaseException) -> BaseException:
    """A nursery wraps what its one child raised in a group of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def with_those_before(error: BaseException | None) -> Iterator[BaseException]:
    """It, and those that it was raised behind."""
    while error is not None:
        yield (error := innermost(error))
        error = error.__context__


def _several(group: BaseExceptionGroup[BaseException], params: Mapping[str, Any]) -> Failure | None:
    """Of several at once, such as partitions that could not be closed: a line, the first code."""
    failures = [explain(one, params) for one in group.exceptions]
    known = [one for one in failures if one is not None]
    if len(known) < len(failures):
        return None
    told = [str(one) for one in known[:SEVERAL_MAX]]
    if len(known) > SEVERAL_MAX:
        told.append(f"and {len(known) - SEVERAL_MAX} more")
    return Failure(f"{group.message}: {'; '.join(told)}", known[0].code, known[0].hint)


def _loaded(name: str) -> ModuleType | None:
    return sys.modules.get(f"segbroker.{name}")


def _client(error: BaseException, params: Mapping[str, Any]) -> Failure | None:
    errors = _loaded("client.errors")
    if errors is None or not isinstance(error, errors.SegbrokerError):
        return None
    text = str(error)
    match error:
        case errors.GroupIdNotFound():
            return Failure(text, ExitCode.NOT_FOUND, "segbroker group list")
        case errors.UnknownTopicOrPartition() | errors.UnknownTopicId():
            return Failure(text, ExitCode.NOT_FOUND, _create_hint(params))
        case errors.OffsetOutOfRange():
            # The client goes on to say what a program would do about it.
            hint = "-o start reads from the first kept record, -o end waits for new ones"
            hint = hint if "topics" in params else ""  # of consume
            return Failure(text.partition(";")[0], ExitCode.NOT_FOUND, hint)
        case errors.GapError():
            hint = "--on-gap print says so and goes on, --on-gap skip says nothing"
            return Failure(text, ExitCode.LOST, hint)
        case errors.NonEmptyGroup():
            return Failure(text, ExitCode.REFUSED, STOP_THEM)
        case errors.UnknownMemberId() if "position" in params:
            # What a commit from outside is told while the group has members.
            text = f"group {params['name']!r} has members"
            return Failure(text, ExitCode.REFUSED, STOP_THEM)
        case errors.InvalidConfig():
            return Failure(text, ExitCode.CONFIG, _setting_hint(text, params))
        case errors.InvalidRequest() if text.startswith(_OF_BROKER):
            # As Kafka says it of a broker's settings; of a topic's it says INVALID_CONFIG.
            return Failure(text, ExitCode.CONFIG, _setting_hint(text, params))
        case errors.InvalidTopic() if _COLLIDES in text:
            hint = "names that differ in . and _ only would be one name in Kafka's metrics"
            return Failure(text, ExitCode.REFUSED, hint)
        case errors.InvalidTopic():
            hint = f"a name has 1 to {TOPIC_NAME_SIZE_MAX} of the characters a-z A-Z 0-9 . _ -"
            return Failure(text, ExitCode.REFUSED, hint)
        case errors.SecurityDisabled():
            hint = "segbroker serve --authorizer acl --super-users User:NAME"
            return Failure(text, ExitCode.REFUSED, hint)
        case errors.TlsFailed() if text.startswith(_TLS_FILES):
            return Failure(text, ExitCode.USAGE)
        case errors.AuthenticationFailed() | errors.TlsFailed():
            return Failure(text, ExitCode.REFUSED, "-X sets TLS and login; see docs/security.md")
        case (
            errors.TopicAuthorizationFailed()
            | errors.GroupAuthorizationFailed()
            | errors.ClusterAuthorizationFailed()
            | errors.TransactionalIdAuthorizationFailed()
        ):
            hint = (
                "somebody with ALTER on the cluster can allow it: segbroker acl add;"
                " the broker's log names the operation (access_denied)"
            )
            return Failure(text, ExitCode.REFUSED, hint)
        case errors.ResourceNotFound():
            hint = "segbroker user list" if "data_dir" in params else ""
            return Failure(text, ExitCode.NOT_FOUND, hint)
        case errors.TokenUnavailable():
            return Failure(text, ExitCode.UNREACHABLE, "-X says where tokens come from")
        case errors.BrokerUnreachable() | errors.ConnectionLost():
            hint = _start_hint(params, error.message, error.wants)
            return Failure(error.message, ExitCode.UNREACHABLE, hint)
        case errors.TimedOut() | errors.RequestTimedOut():
            is_unserved = isinstance(error.__cause__, errors.LeaderNotAvailable)
            hint = _told_hint(params, text) if _NOT_REACHED in text else ""
            return Failure(text, ExitCode.UNREACHABLE, NOT_SERVED_HINT if is_unserved else hint)
        case errors.PeerError():
            return Failure(text, ExitCode.UNREACHABLE, f"is {params.get('bootstrap')} a broker?")
        case errors.StorageFailed() | errors.LeaderNotAvailable():
            return Failure(text, ExitCode.REFUSED, NOT_SERVED_HINT)
        case errors.CorruptBatch() | errors.CorruptMessage():
            return Failure(text, ExitCode.DAMAGED)
        case errors.TopicAlreadyExists():
            hint = (
                ""
                if "name" not in params
                else f"segbroker topic describe {params['name']} shows it"
            )
            return Failure(text, ExitCode.REFUSED, hint)
        case errors.DeliveryFailed():
            return Failure(text, ExitCode.UNDELIVERED)
        case _:
            return Failure(text, ExitCode.REFUSED)


def _setting_hint(text: str, params: Mapping[str, Any]) -> str:
    """What may be meant by a setting that there is not, as the broker says it."""
    unknown = _NO_TOPIC_SETTING.search(text)
    if unknown is not None:
        return topic_setting_hint(unknown[1])
    if _NO_GROUP_SETTING in text:
        return GROUP_SETTINGS_HINT.format(name=params["name"])
    return BROKER_SETTINGS_HINT if _NO_BROKER_SETTING in text else ""


def topic_setting_hint(name: str) -> str:
    """What may be meant by a topic setting that there is not."""
    from segbroker.segments.settings.topic_config import KEYS

    others = [key.name for key in KEYS if key.name != name]  # another make may have none of ours
    near = get_close_matches(name, others, n=1)
    return f"did you mean {near[0]}? {_TOPIC_SETTINGS}" if near else _TOPIC_SETTINGS


def _create_hint(params: Mapping[str, Any]) -> str:
    # Of produce and consume; `topic describe` has a name.
    topics = params.get("topics") or (params.get("topic"),)
    topic = topics[0]
    if topic is None or len(topics) > 1:
        return "segbroker topic list shows what there is"
    if params.get("partition") is not None or params.get("partitions"):
        return f"segbroker topic describe {topic} shows its partitions"
    listed = "segbroker topic list shows what there is"
    return f"create it: segbroker topic create {topic} ({listed})"


def _start_hint(params: Mapping[str, Any], text: str, wants: str) -> str:
    from segbroker.client.settings import parse_bootstrap

    host, port = parse_bootstrap(str(params.get("bootstrap")))[0]  # the port that was tried
    bootstrap = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if _NO_TLS in text:
        return "the port seems to be without TLS: leave TLS out, or name the port of a TLS listener"
    if _IN_THE_LOGIN in text:
        return "it may be unable to check logins now; its log says why (authentication_failed)"
    if any(words in text for words in _HUNG_UP):
        wanted = wants or "a login"
        return (
            f"something listens there; if it requires {wanted}: -X security.protocol=...;"
            " if it has too many connections, its log says so (connection_refused)"
        )
    if any(words in text for words in _SILENT):
        return "something listens there but does not answer: a hanging broker, or no Kafka broker"
    if _NO_PORT in text:
        return (
            "no local port is free for a connection to there, or the address is none of this"
            " machine's: ss -s counts what is open or in TIME-WAIT; net.ipv4.ip_local_port_range"
        )
    if hint := _told_hint(params, text):
        return hint
    if bootstrap.startswith(LOCAL):
        return f"start a broker: segbroker serve --listen {bootstrap}   (or name another with -b)"
    return "is a broker running there? -b names another"


def _told_hint(params: Mapping[str, Any], text: str) -> str:
    """Of an error that names none of the addresses that were asked for: another one was tried."""
    from segbroker.client.settings import joined, parse_bootstrap

    bootstrap = parse_bootstrap(str(params.get("bootstrap")))
    addresses = (re.escape(joined([address])) for address in bootstrap)
    if any(re.search(rf"(?<![\w.-]){address}(?!\d)", text) for address in addresses):
        return ""
    return f"a broker of {joined(bootstrap)} named that address: see its advertised_listeners"


def _broker_config(error: BaseException, params: Mapping[str, Any]) -> Failure | None:
    config = _loaded("broker.configuration.config")
    if config is None or not isinstance(error, config.InvalidConfig):
        return None
    return Failure(str(error), ExitCode.CONFIG, "segbroker serve --help lists every setting")


def _storage(error: BaseException, params: Mapping[str, Any]) -> Failure | None:
    errors = _loaded("segments.errors")
    if errors is None or not isinstance(error, errors.StorageError):
        return None
    match error:
        case errors.DataDirectoryLocked():
            hint = "another broker runs on it: stop that one, or choose another --data"
            if "data_dir" in params:
                hint = "a broker runs on it: without --data-dir that one is asked, see -b"
            if "directory" in params:
                hint = "stop the broker that runs on it; a running one scrubs by itself"
            return Failure(str(error), ExitCode.SYSTEM, hint)
        case errors.DataDirectoryGone():
            hint = (
                "what was acknowledged is in the directory that was opened: "
                "put it back before the next start"
            )
            return Failure(str(error), ExitCode.SYSTEM, hint)
        case errors.CorruptSegment() | errors.PartitionDamaged() | errors.PartitionRefused():
            return Failure(str(error), ExitCode.DAMAGED)
        case errors.UnsupportedFormat():
            hint = "a later version wrote it: start that one, or restore a backup from before it"
            return Failure(str(error), ExitCode.DAMAGED, hint)
        case errors.NotADataDirectory():
            return Failure(str(error), ExitCode.USAGE)
        case _:
            cause = error.__cause__
            hint = _system_hint(cause) if isinstance(cause, OSError) else ""
            return Failure(str(error), ExitCode.SYSTEM, hint)


def _protocol(error: BaseException, params: Mapping[str, Any]) -> Failure | None:
    errors = _loaded("protocol.errors")
    if errors is None or not isinstance(error, errors.ProtocolError):
        return None
    return Failure(str(error), ExitCode.DAMAGED)


def _cannot_listen(error: OSError, what: str, setting: str) -> Failure:
    hint = ""
    match error.errno:
        case errno.EADDRINUSE:
            what = f"the address is in use: {error.filename}"
            flag = "--" + setting.replace("_", "-")
            free = f"{flag} 127.0.0.1:0" if setting != "listeners" else f"port 0 in {setting}"
            hint = f"another broker may run there; {free} takes a free port"
        case errno.EACCES:
            what = f"cannot listen on {error.filename}: {what}"
            hint = "ports below 1024 need root or CAP_NET_BIND_SERVICE"
        case errno.EADDRNOTAVAIL:
            what = f"cannot listen on {error.filename}: {what}"
            hint = "this machine has no such address"
            if told := _TELLS_CLIENTS.get(setting):
                hint += f"; one that only clients see goes into {told}"
        case _:
            what = f"cannot listen on {error.filename}: {what}"
            hint = _system_hint(error)
    return Failure(what, ExitCode.SYSTEM, hint)


def _system(error: BaseException, params: Mapping[str, Any]) -> Failure | None:
    if not isinstance(error, OSError):
        return None
    what = error.strerror or str(error)
    tls = _loaded("broker.peers.tls")
    if tls is not None and isinstance(error, tls.CertificateUnusable):
        return _certificate(error)
    listener = _loaded("broker.peers.listener")
    if listener is not None and isinstance(error, listener.CannotListen):
        return _cannot_listen(error, what, error.setting)
    if isinstance(error, NotADirectoryError) and os.path.isfile(error.filename or ""):
        what = f"{error.filename} is a file: no data directory can be there"
    elif error.filename is not None:
        what = f"{error.filename}: {what}"
    hint = _system_hint(error)
    if error.filename is None and error.errno in _NO_CALL:
        hint = "a filter may refuse the call (seccomp, SystemCallFilter): strace -f names it"
    elif error.filename is not None and error.errno in _NOT_OFFERED:
        hint = "its file system has to offer locks (flock) and syncs of files and directories"
    return Failure(what, ExitCode.SYSTEM, hint)


def _certificate(error: OSError) -> Failure:
    """Of files that settings name: as wrong at the next start, unless the machine was short of
    something."""
    cause, code, hint = error.__cause__, ExitCode.CONFIG, ""
    if isinstance(cause, OSError) and cause.filename is not None:  # not of OpenSSL's own numbers
        code = ExitCode.SYSTEM if cause.errno in _SHORT else code
        hint = _system_hint(cause)
    return Failure(str(error), code, hint)


def _short_of(error: BaseException, params: Mapping[str, Any]) -> Failure | None:
    """Of threads or of memory, which Python has no errno for."""
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        hint = "a limit of memory is reached: vm.overcommit_memory, LimitAS, ulimit -v"
        return Failure("the system gives no further memory", ExitCode.SYSTEM, hint)
    if not isinstance(error, RuntimeError) or str(error) != _NO_THREAD:
        return None
    hint = "a limit of tasks or of memory is reached: TasksMax, pids.max, ulimit -u, ulimit -v"
    return Failure("the system gives no further thread", ExitCode.SYSTEM, hint)


def _system_hint(error: OSError) -> str:
    """What may be done about it, where that is known."""
    return _NO_DESCRIPTOR.get(error.errno or 0) or _owner_hint(error)


def _owner_hint(error: OSError) -> str:
    """Whose it is that may not be opened, where that is somebody else."""
    if error.errno != errno.EACCES or not isinstance(error.filename, str):
        return ""
    for path in (Path(error.filename), *Path(error.filename).parents):
        try:
            owner = path.stat().st_uid
        except OSError:
            continue  # what is around it can be looked at
        if owner == os.geteuid():
            break
        return f"{path} belongs to {_user(owner)}, and this is run by {_user(os.geteuid())}"
    return ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
