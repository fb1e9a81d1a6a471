"""What a run holds: its state, its deadlines, its privacy account, and the model that it serves.

Nothing here trains or undoes anything; an export that names who receives it is recorded as a release.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from disavow import runs
from disavow.cosigning import cosignatures_of
from disavow.domain import Release, Verdict, VerdictKind
from disavow.errors import ConfigError, DisavowError, ModelNotReady, RunInUse
from disavow.federation.proofs import Proofs
from disavow.federation.purges import Purges
from disavow.federation.requests import Requests
from disavow.ledger import Finding, Ledger
from disavow.ledger.models import digest_of, to_safetensors
from disavow.request_register import DueRequest, due_first
from disavow.results import ExportedModel, KeptModels, Spending, Status, Unsettled
from disavow.rounds.options import room_for

if TYPE_CHECKING:
    from torch import Tensor, nn

    from disavow.privacy.accountants import Claim


class Inspection(Requests, Purges, Proofs):
    """A run as it stands, for people, dashboards and whoever serves its model."""

    def clients(self) -> tuple[str, ...]:
        """List the clients that are in the run.

        Returns:
            Their ids, in order.
        """
        return self.ledger.clients()

    def status(self, *, due: bool = True) -> Status:
        """Tell what the run holds, without touching it.

        Args:
            due: Also list the requests that are open, however many there are, and who is yet to be purged.

        Returns:
            The state of the run, of which `to_json` gives a form for machines.

        """
        ledger, settings = self.ledger, self.settings
        models, leaves, key = ledger.round_models(), ledger.log_length(), ledger.log_key()
        summaries = ledger.summaries()
        standing = sum(summary.standing for summary in summaries)
        kept = [each for each in models if each.kept]
        cosigned = cosignatures_of(ledger, settings.witness)
        return Status(
            run=str(self.directory),
            run_id=ledger.run_id,
            created_at=ledger.created_at,
            created_by=ledger.created_by,
            policy=ledger.policy,
            settings=settings,
            clients=ledger.count_clients(),
            log=f"{leaves} leaves, "
            + (f"signed by {key.name} ({key.id[:16]})" if key else "not signed: there is no key (`disavow keygen`)")
            + (f", {cosigned}" if cosigned else ""),
            cosigned=cosigned,
            unsettled=self.unsettled(),
            stored_bytes=ledger.stored_bytes(),
            models=KeptModels(
                retention=settings.ledger.retention,
                kept=len(kept),
                thinned=len(models) - len(kept),
                kept_bytes=sum(each.stored_bytes for each in kept),
                kept_rounds=[each.round - 1 for each in kept],
                url=ledger.models_at,
            ),
            model=ledger.digest_before(standing + 1),
            budget=self._spending(),
            odds=ledger.odds(),
            rounds=summaries,
            obstacle=self._obstacle(standing),
            engine=ledger.engine_choice(),
            due=self.due() if due else (),
            purge=self._outlook() if due else None,
        )

    def due(self, now: datetime | None = None) -> tuple[DueRequest, ...]:
        """List the requests about which something is still to be done, the one with the least time left first.

        Where the settings promise a purge, a deniable answer is an interim one: then whoever is yet to be purged is
        among them.

        Args:
            now: The moment to count from; the present one by default.

        Returns:
            The requests, each with its days left and whether it is at risk.

        """
        now, open_ones = now or self.clock(), self.ledger.open_requests()
        outlook = self._outlook()
        risks = {} if outlook is None else {n: replace(outlook, now=now).at_risk(n) for n in outlook.deadlines}
        pending = {request.number for request in open_ones}
        interim = self.ledger.requests([number for number in risks if number not in pending])
        listed = tuple(map(self._with_approval, (*open_ones, *interim)))
        return due_first(str(self.directory), listed, now, risks)

    def unsettled(self) -> Unsettled:
        """Look whether rounds are still to be rebuilt, and whether leavers are in the run again.

        Returns:
            What is still to be done; false where nothing is.
        """
        with self.ledger.snapshot() as snapshot:
            forgotten = snapshot.restored_from_backup()
            found = Unsettled(snapshot.rebuilding(), forgotten, snapshot.last_round + 1, run=str(self.directory))
        further = "its Flower server app goes on"
        if not runs.on_nodes(self.settings):
            further = f"`disavow resume {self.directory}` goes on"
        return replace(found, remedy=further) if found else found

    def _spending(self) -> Spending | None:
        budget = runs.budget_of(self.settings)
        if budget is None:
            return None
        claim = "sampled" if self.ledger.policy.anchored else "unconditional"
        return Spending(budget.epsilon, budget.delta, budget.spent(self.ledger.events()), claim)

    def _obstacle(self, standing: int) -> str | None:
        """Why no more rounds can be trained, where some are wanted."""
        left, k = self.ledger.count_clients(), self.ledger.policy.k
        if standing >= self.settings.rounds:
            return None
        if left is None:
            return "the keyring is not here"
        if left < k:
            return f"{left} clients are fewer than k"
        try:
            spent = room_for(self.ledger, self.options, standing + 1).obstacle is not None
        except DisavowError:
            return None  # the keyring is not here that says who is in the next round
        return "the privacy budget is spent" if spent else None

    def claims(self, delta: float | None = None) -> tuple[Claim, ...]:
        """Account for what the executed rounds have cost in differential privacy.

        Args:
            delta: That of the claims; what the settings say by default.

        Returns:
            One claim for each way of accounting that applies.

        """
        from disavow.privacy.accountants import account

        return tuple(account(self.ledger.events(), delta or self.settings.privacy.delta))

    def departures(self, *, skip: int = 0, most: int = 20) -> tuple[tuple[str, Verdict], ...]:
        """Judge clients one by one as if each left now, alone. Changes nothing.

        Args:
            skip: How many clients to leave out, in the order of their ids.
            most: How many to judge.

        Returns:
            Clients with the verdict that each would get.

        """
        from disavow.erasure.judge import judged

        with self.ledger.snapshot() as snapshot:
            some = snapshot.clients()[skip : skip + most]
            numbers = snapshot.numbers_of(some)
            never = snapshot.never_present(list(numbers.values()))
            absent = Verdict(VerdictKind.NEVER_PRESENT)
            return tuple(
                (client, absent if number in never else judged(snapshot, [number], self.mechanism))
                for client, number in numbers.items()
            )

    def check(
        self,
        *,
        absent: Sequence[str] = (),
        checkpoint: bytes | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Finding]:
        """Check the run from its stored bytes: see `check_run`, which also takes one that cannot be opened.

        Args:
            absent: Ids that no file of the run may contain.
            checkpoint: A signed head that was kept; the log must go on from it.
            on_progress: Hears how many checks are done, of how many.

        Returns:
            Everything that was found, faults and notes; an empty list where there is nothing.

        Raises:
            RunInUse: This federation is open for training.

        """
        from disavow.run_checks import check_run

        if self.ledger.writable:
            raise RunInUse(f"{self.directory} is open for training here: close it first, then check it")
        # closed meanwhile: reading the database as a file would drop the locks that SQLite has on it
        self.ledger.close()
        try:
            return check_run(
                self.directory, keys=self.keys, absent=absent, checkpoint=checkpoint, on_progress=on_progress
            )
        finally:
            self.ledger = Ledger.open(self.directory, keys=self.keys)

    def export(self, *, average: int = 1, anyway: bool = False, to: str | None = None) -> ExportedModel:
        """Give the model that is served, or the mean of it and of those before it.

        Args:
            average: Of how many models to take the mean.
            anyway: Also while rounds that a rollback undid are still to be rebuilt.
            to: Who receives it: recorded in the run, sealed, before it is given out; see `releases`.

        Returns:
            The model as a safetensors file, with its SHA-256.

        Raises:
            ModelNotReady: A rebuild is unfinished, or leavers are in the run again.
            ConfigError: Fewer rounds stand than are to be averaged.
            TextNamesClient: The name of who receives it contains the id of a client.

        """
        ledger, open_work = self.ledger, self.unsettled()
        if (reason := open_work.reason) is not None and not anyway:
            raise ModelNotReady(
                f"{self.directory}: {reason}. `--anyway` exports what it has now; docs/erasure.md says what to "
                "serve meanwhile"
            )
        newest = ledger.last_round
        if average == 1:
            data, mean_of = ledger.store.read_bytes(ledger.layout, ledger.digest_before(newest + 1)), None
        elif average > newest:
            raise ConfigError(f"{self.directory} has no more rounds than {newest}: too few for --average {average}")
        else:
            mean, mean_of = ledger.mean_model(average)
            data = to_safetensors(ledger.layout, mean)
        made = ExportedModel(data, digest_of(data), mean_of, newest, open_work)
        return made if to is None else replace(made, release=self._release(made, to))

    def _release(self, model: ExportedModel, to: str) -> int:
        after, averaged = (model.digest, 1) if model.mean_of is None else (model.mean_of[-1], len(model.mean_of))
        with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
            return ledger.note_release(
                digest=model.digest, newest=model.newest, after=after, averaged=averaged, to=to, at=self.clock()
            )

    def serving_statement(
        self, *, since: int | None = None, model: str | None = None, anyway: bool = False
    ) -> bytes:
        """Sign which model is served, as of the newest head, so that no proof about another can be shown for it.

        Args:
            since: The head (`Proof.as_of`) of a proof that is to be compared with it, where that is older: the
                leaves of the log from there on go with the statement, and show how the model came about since.
            model: The digest of the model that it must be about, such as that of an export.
            anyway: Also while rounds that a rollback undid are still to be rebuilt.

        Returns:
            The statement as a file, which `disavow verify --serving` checks; see docs/proof-format.md.

        Raises:
            ConfigError: There is no key, the log is signed by another one, or it never had `since` leaves.
            ModelNotReady: A rebuild is unfinished, or the run has another model by now than `model`.

        """
        from disavow.erasure.serving import state_serving

        if (reason := self.unsettled().reason) is not None and not anyway:
            raise ModelNotReady(f"{self.directory}: {reason}: it serves no model that can be stated")
        signer, now = self._signer(), self.clock()  # before the head is read: no leaf behind it is older
        self._refuse_other_key(signer)
        return state_serving(self.ledger, signer, at=now, since=since, model=model)

    def releases(self) -> tuple[Release, ...]:
        """List the models that were exported for somebody, and which of them are superseded (GDPR Art. 19).

        Without the keyring nobody is named.

        Returns:
            The releases, in the order in which they were made.

        """
        return self.ledger.releases()

    def model(self, *, average: int = 1) -> nn.Module:
        """Build the network with the weights that are served.

        Args:
            average: Of how many models to take the mean, the one that is served and those before it.

        Returns:
            The task's own module, complete: frozen parameters are those of the task.

        Raises:
            CannotRetrain: What trained the run, and so its network, is not to be had here.
            ConfigError: Fewer rounds stand than are to be averaged.

        """
        import torch

        from disavow.engines.state import put_model
        from disavow.ledger.models import from_safetensors
        from disavow.rounds.vectors import Model

        network = copy.deepcopy(self.prepared.network)
        exported = self.export(average=average, anyway=True)
        vector = torch.from_numpy(from_safetensors(self.ledger.layout, exported.data))
        put_model(network, Model(self.ledger.layout, vector))
        return network

    def state_dict(self, *, average: int = 1) -> dict[str, Tensor]:
        """Give the state of the network that is served, frozen parameters and whole numbers included.

        Args:
            average: As for `model`.

        Returns:
            What `load_state_dict` of the same network takes, with nothing missing.

        """
        return dict(self.model(average=average).state_dict())
