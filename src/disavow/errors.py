"""One tree for everything disavow refuses to do.

Each error carries a stable code (`DSV-…`, listed in docs/errors.md), a message that a person can act on, and the
exit code of the command that met it::

    DisavowError
    ├── ConfigError          2   a setting, argument or input file that cannot be used
    │   ├── MissingExtra     2   the command needs an optional part that is not installed
    │   ├── ModelMismatch    2   a model whose tensors are not those of the network that is to hold it
    │   ├── TaskError        2   a task that cannot be imported, built, trained or evaluated
    │   ├── UnknownMethod    2   a method of unlearning that is not registered here
    │   ├── TextNamesClient  2   a text to be stored in a run that contains the id of a client
    │   ├── KeyringMissing   2   the keyring of a run is not at hand: nobody in it can be identified
    │   └── KeyringOutdated  2   the keyring is older than its run: it would bring forgotten clients back
    ├── StrategyError       17   a registered strategy failed, or returned what cannot be used
    ├── UnknownClient        7   a client that this run does not have
    │   ├── NeverTookPart    7   a client that took part in no round that stands: there is nothing to compare
    │   └── AlreadyForgotten 7   a client who has left this run: there is nothing left to erase
    ├── UnknownRecord        7   a record that its client does not hold
    ├── RecordErased         7   a record that was erased before
    ├── RecordsUnchecked     2   records that cannot be checked here, or not erased one by one
    ├── StorageError        14   the disk, or a limit of the system, refused; the run stays at its last good state
    │   ├── StorageFull      8   no room to write
    │   ├── BucketRefused   14   the bucket with a run's models is not there, or may not be used
    │   ├── BucketUnreachable 14  it does not answer; the same command may succeed later
    │   └── DatabaseUnavailable 14  the database server cannot be reached, refuses, or went away
    ├── RunError             2   a run directory that cannot be used as asked
    │   ├── RunExists        2   it is there already, and nothing is ever overwritten
    │   ├── RunMissing       2   there is no run
    │   ├── RunUnsafe        2   it holds a link or a special file: it may lead to files that are not its own
    │   ├── ModelNotReady   11   the model it serves now is not the one that it will serve
    │   ├── NotConfirmed    12   a rollback that nobody has confirmed; nothing was placed
    │   ├── ProofTooLarge   15   a proof that no verifier would read; nothing was deleted
    │   ├── UnknownRequest   2   a request that this run does not have
    │   ├── RequestNotOpen   2   a request that is not in a state in which this can be done to it
    │   ├── DeadlineRefused  2   a deadline that may not be set: in the past, too far, or a second time
    │   ├── NotForgotten     2   somebody who is to be readmitted, and is in
    │   ├── ForecastChanged 21   an approval of a forecast that is no longer the present one; nothing was approved
    │   ├── ApprovalAwaited 22   a request that is placed, and waits until somebody approves it or ends its pause
    │   ├── PurgeRefused    24   a purge after which not all rounds could be retrained; nothing was undone
    │   ├── UpdatesNotKept  25   a method that needs clients' updates, of a run that kept none
    │   ├── RunOutdated      2   not the state of the run that its keyring knows last: a restored one, or a copy
    │   └── RunInUse         4   another process holds it
    ├── CannotRetrain       10   rounds that cannot be trained here; nothing was undone, and who asked for it waits
    ├── LedgerError          1   the ledger cannot be trusted, or does not hold what was asked
    │   ├── IntegrityError   1   stored bytes are not what was recorded
    │   ├── LedgerVersion    6   written in a format that this version does not read
    │   └── LeaverReturns    1   somebody who was forgotten would become a client again
    ├── VerificationError    1   a proof, receipt or checkpoint that does not hold
    │   ├── OtherModel      13   the proof holds, but the model given is another than the one proved
    │   ├── SplitView       40   two signed heads that cannot be of one log: the server tells two histories
    │   ├── LogShrunk       41   a log that has fewer leaves than it had: history was taken back
    │   ├── LogStale        42   a log that has had no new head for longer than was allowed
    │   └── Unreadable       2   it cannot even be read
    ├── LogUnreachable      43   a log that cannot be asked now; the same command may succeed later
    ├── WitnessError         1   a witness that did not cosign a head; the head and the run stay as they are
    │   ├── WitnessUnavailable 1  it cannot be reached, or does not answer in time or as witnesses do
    │   ├── WitnessRefused   1   it does not know the log, or has seen another history of it
    │   └── WitnessInUse    26   another process holds the state of this witness
    ├── RoundRefused         5   a round that must not be recorded; the run stays as it was
    │   └── BudgetSpent      9   it would exceed the privacy budget; the model stays in use
    └── ServiceError        18   what the service refuses, whoever asks
        ├── BadRequest      18   a body, parameter or header that cannot be used
        ├── NotAuthenticated 18  no credential, or one that is not known, used up or expired
        ├── NotAllowed      18   the role or the scope of whoever asks does not allow it
        ├── NotFound        18   there is no such page, run or request
        ├── CrossSite       18   another site made the browser ask
        ├── WrongHost       18   asked under a name that this service does not answer to
        ├── TooLarge        18   a body larger than is read
        ├── TooManyRequests 18   more requests than are answered in this time
        └── KeyReused       18   an Idempotency-Key that was used for another request

0 is success. 1 also means "fsck or an audit found something", 3 "valid, but it names nobody", 16 "an audit found
nothing, and could not have seen what it was asked about" (`audit --detect`), 23 "a request is overdue" (`due`), 44
"nothing ties these heads to each other" (`gossip`). 70
is an internal error, a defect of disavow (`DISAVOW_DEBUG=1` shows where it came from), 130 an interruption from the
keyboard, 141 that whoever read the output has gone. What the operating system refuses (permissions, say) is 2.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Numbers of system errors that are a `StorageFull`."""

REFUSED = frozenset({errno.EIO, errno.EFBIG, errno.EMFILE, errno.ENFILE})
"""Those that are a `StorageError`: a failing disk, a limit on the size of files or on how many are open."""


class DisavowError(Exception):
    """The base of all errors that disavow raises on purpose."""

    code = "DSV-100"
    exit_code = 1
    details: Mapping[str, Any] = MappingProxyType({})
    """What the service's answer says beside code and message."""


class ConfigError(DisavowError):
    """A setting, argument or input file that cannot be used."""

    code = "DSV-101"
    exit_code = 2


class MissingExtra(ConfigError):
    """The command needs an optional part of disavow that is not installed."""

    code = "DSV-102"


class ModelMismatch(ConfigError):
    """A model whose tensors are not those of the network that is to be trained or evaluated from it."""

    code = "DSV-103"


class TaskError(ConfigError):
    """A task of the user's own that cannot be imported, built, trained or evaluated."""

    code = "DSV-105"


def how_to_install(extra: str) -> str:
    """Name the command that installs an extra: from a clone, because disavow is not on a package index yet."""
    return f'in a clone of disavow: pip install --constraint constraints.txt ".[{extra}]"'


class KeyringMissing(ConfigError):
    """The keyring of a run is not at hand: nobody in it can be identified."""

    code = "DSV-106"


class KeyringOutdated(ConfigError):
    """The keyring is older than its run: it would bring forgotten clients back."""

    code = "DSV-107"


class TextNamesClient(ConfigError):
    """A text to be stored in a run that contains the id of a client. Nothing was changed."""

    code = "DSV-108"


class UnknownMethod(ConfigError):
    """A method of federated unlearning that is not registered here."""

    code = "DSV-109"


class StrategyError(DisavowError):
    """A strategy that somebody registered failed, or returned what cannot be used. It is no defect of disavow."""

    code = "DSV-104"
    exit_code = 17


class UnknownClient(DisavowError):
    """A client that this run does not have, and never had."""

    code = "DSV-301"
    exit_code = 7


class AlreadyForgotten(UnknownClient):
    """A client who has left this run and was forgotten. Which request was its own, only its opening tells."""

    code = "DSV-303"


class NeverTookPart(UnknownClient):
    """A client that took part in no round that stands: no method has anything to forget."""

    code = "DSV-307"


class UnknownRecord(DisavowError):
    """A record that its client does not hold."""

    code = "DSV-304"
    exit_code = 7


class RecordErased(DisavowError):
    """A record that was erased before: no round since has seen it."""

    code = "DSV-305"
    exit_code = 7


class RecordsUnchecked(DisavowError):
    """Records that cannot be erased by themselves: the task has no keys for them, cannot be loaded to look for
    them, or has no others of their client.
    """

    code = "DSV-306"
    exit_code = 2


class StorageError(DisavowError):
    """The disk or a limit of the system refused to read or write. The run stays at its last good state."""

    code = "DSV-701"
    exit_code = 14


class StorageFull(StorageError):
    """There is no room to write. The run stays at its last good state."""

    code = "DSV-702"
    exit_code = 8


class BucketRefused(StorageError):
    """The bucket with a run's models is not there, or may not be used. The run stays at its last good state."""

    code = "DSV-703"


class BucketUnreachable(StorageError):
    """The bucket with a run's models does not answer. The run stays at its last good state; try again."""

    code = "DSV-704"


class DatabaseUnavailable(StorageError):
    """The database server cannot be reached, refuses the role or its password, or went away. The run stays at its
    last good state.
    """

    code = "DSV-711"


class RunError(DisavowError):
    """A run directory that cannot be used as asked."""

    code = "DSV-201"
    exit_code = 2


class RunExists(RunError):
    """The run directory is there already; nothing is ever overwritten."""

    code = "DSV-202"


class RunMissing(RunError):
    """There is no run in that directory."""

    code = "DSV-203"


class RunUnsafe(RunError):
    """The run directory holds a link or a special file, which may lead to files that are not its own."""

    code = "DSV-204"


class ModelNotReady(RunError):
    """The model that the run serves now is not the one that it will serve: a rebuild is unfinished, or leavers are
    in it again because it was restored from a backup.
    """

    code = "DSV-205"
    exit_code = 11


class NotConfirmed(RunError):
    """A rollback that nobody has confirmed. Nothing was placed or changed."""

    code = "DSV-206"
    exit_code = 12


class ProofTooLarge(RunError):
    """A proof with more bytes than a verifier reads. Nothing is deleted without a proof that can be verified."""

    code = "DSV-207"
    exit_code = 15


class RunInUse(RunError):
    """Another process holds the run."""

    code = "DSV-208"
    exit_code = 4


class RunOutdated(RunError):
    """A run that is not in the state that its keyring knows last: it was restored from a backup, or another copy of
    it was written to. `disavow keyring accept RUN` goes on with it.
    """

    code = "DSV-209"


class UnknownRequest(RunError):
    """A request that this run does not have. Nothing was changed."""

    code = "DSV-311"


class RequestNotOpen(RunError):
    """A request to which this cannot be done, as it is answered, refused or paused, say. Nothing was changed."""

    code = "DSV-312"


class DeadlineRefused(RunError):
    """A deadline that may not be set: in the past, more than three months after receipt, or a second time.

    Nothing was changed.
    """

    code = "DSV-313"


class NotForgotten(RunError):
    """Somebody who is to be readmitted, and is in the run. Nothing was changed."""

    code = "DSV-314"


class ForecastChanged(RunError):
    """An approval that names another forecast than the present one, which `digest` names. Nothing was approved."""

    code = "DSV-315"
    exit_code = 21

    def __init__(self, message: str, *, digest: str | None = None) -> None:
        """Refuse an approval.

        Args:
            message: What a person is told.
            digest: That of the present forecast; None where there is none any more.

        """
        super().__init__(message)
        self.digest = digest


class ApprovalAwaited(RunError):
    """A request that is placed, and waits until somebody approves it or ends its pause."""

    code = "DSV-316"
    exit_code = 22


class PurgeRefused(RunError):
    """A purge that cannot be done now: not all rounds could be retrained. Nothing was undone, and the model that is
    served stays.
    """

    code = "DSV-331"
    exit_code = 24


class UpdatesNotKept(RunError):
    """A method that needs what every client sent in every round, of a run that did not keep it."""

    code = "DSV-341"
    exit_code = 25


class CannotRetrain(DisavowError):
    """Rounds that cannot be trained here: the data or the code that trained them is not at hand.

    Nothing was undone, and requests whose answer needs it wait.
    """

    code = "DSV-302"
    exit_code = 10


class LedgerError(DisavowError):
    """The ledger cannot be trusted, or does not hold what was asked for."""

    code = "DSV-401"


class IntegrityError(LedgerError):
    """Stored bytes are not what was recorded."""

    code = "DSV-402"


class LedgerVersion(LedgerError):
    """The ledger is in a format that this version of disavow does not read."""

    code = "DSV-403"
    exit_code = 6


class LeaverReturns(LedgerError):
    """Somebody who was forgotten would become a client again under the same id."""

    code = "DSV-404"


class VerificationError(DisavowError):
    """A proof, receipt or checkpoint that does not hold."""

    code = "DSV-501"


class OtherModel(VerificationError):
    """A proof that holds, and a model that is another than the one proved."""

    code = "DSV-502"
    exit_code = 13


class Unreadable(VerificationError):
    """A proof, receipt or checkpoint that cannot even be read."""

    code = "DSV-503"
    exit_code = 2


class WitnessError(DisavowError):
    """A witness that did not cosign a head of a log. The head and the run stay as they are."""

    code = "DSV-510"


class WitnessUnavailable(WitnessError):
    """A witness that cannot be reached, or does not answer in time or as witnesses do. It is asked again later."""

    code = "DSV-511"


class WitnessRefused(WitnessError):
    """A witness that does not cosign a head: it does not know the log, or has seen another history of it."""

    code = "DSV-512"


class WitnessInUse(WitnessError):
    """Another process holds the state of this witness: two together could cosign two histories."""

    code = "DSV-513"
    exit_code = 26


class SplitView(VerificationError):
    """Two heads, signed by the same server, that cannot be beginnings of one log: it tells two histories."""

    code = "DSV-521"
    exit_code = 40


class LogShrunk(VerificationError):
    """A log that has fewer leaves than a head that it signed before: history was taken back."""

    code = "DSV-522"
    exit_code = 41


class LogStale(VerificationError):
    """A log that has had no new head for longer than was allowed."""

    code = "DSV-523"
    exit_code = 42


class LogUnreachable(DisavowError):
    """A log that cannot be asked now. The same command may succeed later."""

    code = "DSV-524"
    exit_code = 43


class RoundRefused(DisavowError):
    """A round that must not be recorded. The run stays as it was."""

    code = "DSV-601"
    exit_code = 5

    UNCHANGED = "; nothing was recorded, the run is unchanged"
    """How the message ends where a person is told of it as it happens."""

    def __init__(self, message: str, *, nameless: str = "") -> None:
        """Refuse a round.

        Args:
            message: What a person is told as it happens; it may name clients.
            nameless: The same without any name, which may be stored in the run; "" where nobody has said so.

        """
        super().__init__(message)
        self.nameless = nameless

    @property
    def reason(self) -> str:
        """Why a rebuild was given up: kept with the run, so it names nobody, and the run is not as it was."""
        return self.nameless.removesuffix(self.UNCHANGED) or f"a round was refused ({self.code})"


class BudgetSpent(RoundRefused):
    """A round that would exceed the privacy budget. What stands is in use, and erasures are still honoured."""

    code = "DSV-602"
    exit_code = 9


class ServiceError(DisavowError):
    """What the service (`disavow serve`) refuses, whoever asks. Nothing was changed."""

    code = "DSV-800"
    exit_code = 18


class BadRequest(ServiceError):
    """A body, parameter or header that cannot be used."""

    code = "DSV-801"


class NotAuthenticated(ServiceError):
    """No credential, or one that is not known, was used up, was revoked or has expired."""

    code = "DSV-802"


class NotAllowed(ServiceError):
    """The role or the scope of whoever asks does not allow it."""

    code = "DSV-803"


class NotFound(ServiceError):
    """There is no such page, run or request."""

    code = "DSV-804"


class CrossSite(ServiceError):
    """Another site made the browser ask."""

    code = "DSV-805"


class WrongHost(ServiceError):
    """The service was asked under a name that it does not answer to."""

    code = "DSV-806"


class TooLarge(ServiceError):
    """A body that is larger than is read."""

    code = "DSV-807"


class TooManyRequests(ServiceError):
    """More requests than are answered in this time."""

    code = "DSV-808"


class KeyReused(ServiceError):
    """An Idempotency-Key that was used for another request."""

    code = "DSV-809"


class MetricNamesClient(UserWarning):
    """A metric whose name contains the id of a client. It is not stored: no id may stand in a run."""
