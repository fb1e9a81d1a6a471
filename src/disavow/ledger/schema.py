"""The tables. No id of a client stands in any of them, nor anything made from one without a key.

    anchors * (fixed clusters: their borders and weights, kept when clients leave)
    members * (what the run knows of a client, sealed under its key)
    requests * ── request_events * (what happened to each, by whom and why: sealed)
    releases * (which model went to whom: sealed)
    run 1 ── rounds * ── clusters * ── slots * ─┬─ memberships 1
              ├─ models (before, after)         └─ withdrawals 0..1 ── erasures ── requests
              ├─ evaluations 0..1
              ├─ events 1
              ├─ rebuilt 0..1 (what a round without clusters was rebuilt from)
              └─ log 1 (and one for each withdrawal, rollback, purge and key) ── cosignatures *

Who filled a slot is said by the keyring alone (`ledger/keyring/`): `memberships` has a pseudonym and what is
sealed under the client's key. They stay when a client is forgotten, and nobody can open or link them any more.
`updates` says which memberships' updates are kept as files, for the mechanism that rebuilds from them.
"""

from __future__ import annotations

import sqlalchemy as sa

# Indexes of some rows alone say so for SQLite; ledger/postgres.py says the same for PostgreSQL, whose dialect is
# loaded where it is used.
metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_LARGE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""What may exceed 32 bits, which every integer of SQLite may."""

run = sa.Table(
    "run",
    metadata,
    sa.Column("run_id", sa.String, primary_key=True, comment="random, 32 hexadecimal digits"),
    sa.Column("created_at", sa.String, nullable=False, comment="UTC, ISO 8601"),
    sa.Column("created_by", sa.String, nullable=False, comment="name and version of the software"),
    sa.Column("policy", sa.Text, nullable=False, comment="JSON"),
    sa.Column("layout", sa.Text, nullable=False, comment="JSON: names and shapes, in vector order"),
    sa.Column("initial_model", sa.ForeignKey("models.digest"), nullable=False),
    sa.Column("settings_digest", sa.String, nullable=False, comment="of what config.toml must keep"),
    sa.Column("trainer", sa.Text, nullable=False, comment="JSON: what trains it, such as the digest of its data"),
    sa.Column("digest", sa.LargeBinary, nullable=False, comment="SHA-256 of the above; see ledger/rows.py"),
    sa.Column("keyring", _LARGE, nullable=False, comment="generation of the keyring when last written"),
    sa.Column("history", sa.String, nullable=False, comment="random; a new one once a restored run is accepted"),
    sa.Column("commits", _LARGE, nullable=False, comment="counts changes of the log and of the requests"),
    sa.Column("engine", sa.Text, comment="JSON: which engine trained last, and why no faster one did"),
)

models = sa.Table(
    "models",
    metadata,
    sa.Column("digest", sa.String, primary_key=True, comment="SHA-256 of the uncompressed safetensors file"),
    sa.Column("stored_bytes", _LARGE, nullable=False, comment="size of the compressed file"),
    sa.Column("present", sa.Boolean, nullable=False, server_default=sa.true(), comment="false once deleted"),
    sa.Column(
        "thinned",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="deleted to keep to ledger.retention",
    ),
)

members = sa.Table(
    "members",
    metadata,
    sa.Column("token", sa.LargeBinary, primary_key=True, comment="a client's pseudonym in the run"),
    sa.Column("sealed", sa.LargeBinary, nullable=False, comment="what the run knows of it; see ledger/clients.py"),
    sqlite_with_rowid=False,
)

anchors = sa.Table(
    "anchors",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="from 0, in hash order"),
    sa.Column("until", sa.LargeBinary, comment="upper border, drawn between two hashes; NULL for the last"),
    sa.Column("capacity", sa.Integer, nullable=False, comment="ever given; leavers' places are gaps"),
    sa.Column("share", sa.String, nullable=False, comment="sum of size classes, leavers' included"),
    sa.Column("checksum", sa.LargeBinary, nullable=False, comment="of this row; see ledger/rows.py"),
)

rounds = sa.Table(
    "rounds",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, comment="counts the recorded rounds of this number"),
    sa.Column("before", sa.ForeignKey("models.digest"), nullable=False),
    sa.Column("after", sa.ForeignKey("models.digest"), nullable=False),
    sa.Column("delta", sa.Float, nullable=False, comment="how near counted as alike"),
    sa.Column("update_norm", sa.Float, nullable=False, comment="median L2 norm of the updates"),
    sa.Column("pairs_within", sa.Float, nullable=False, comment="share of all pairs of updates within delta"),
    sa.Column("tau", sa.Float, nullable=False, comment="Gaussian noise on each parameter; 0 without any"),
    sa.Column("participants", sa.Integer, nullable=False),
    sa.Column("clusters", sa.Integer, nullable=False, comment="0: it was rebuilt"),
    sa.Column("spread", sa.Float, comment="the largest of its clusters'; NULL without any"),
    sa.Column("digest", sa.LargeBinary, nullable=False, comment="SHA-256 of the record; see ledger/rows.py"),
    sa.Column("recorded_at", sa.String, nullable=False, comment="UTC, ISO 8601"),
    sa.Column("epoch", sa.Integer, nullable=False, comment="which of the clients' keys it goes by"),
    sa.Column("nonce", sa.LargeBinary, nullable=False, comment="random: pseudonyms never repeat, restored or not"),
    sa.Column("standing", sa.Boolean, nullable=False, comment="false once undone by a rollback"),
    sa.Column("superseded_by", sa.Integer, comment="the erasure that undid it"),
    sa.Column("seconds", sa.Float, comment="from broadcast to record"),
    sa.Column("trainer", sa.String, comment="what ran the local training, such as compiled or sequential"),
    sa.Column(
        "repeats",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="its clusters are those of the round before, less leavers: it never breaks before that one",
    ),
    sa.UniqueConstraint("number", "attempt"),
    # ids are never given twice, so that a missing last row is noticed
    sqlite_autoincrement=True,
)
sa.Index(
    "ix_rounds_standing_number",
    rounds.c.number,
    unique=True,
    sqlite_where=rounds.c.standing,
)

clusters = sa.Table(
    "clusters",
    metadata,
    sa.Column("round_id", sa.ForeignKey("rounds.id"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("first_slot", sa.Integer, nullable=False),
    sa.Column("size", sa.Integer, nullable=False, comment="slots, whether or not their members still are in"),
    sa.Column("capacity", sa.Integer, nullable=False, comment="drawn among: the slots, and fixed clusters' gaps"),
    sa.Column("weight", sa.Float, nullable=False, comment="its members' share of the data, by size classes"),
    sa.Column("spread", sa.Float, nullable=False, comment="how far two members' updates lie apart at most"),
    sa.Index("ix_clusters_round_id_first_slot", "round_id", "first_slot", unique=True),
    sqlite_with_rowid=False,
)

slots = sa.Table(
    "slots",
    metadata,
    sa.Column("round_id", sa.ForeignKey("rounds.id"), primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True, comment="from 0 through all clusters of the round"),
    sa.Column("commitment", sa.LargeBinary, nullable=False, comment="to who filled it; see proof/commitment.py"),
    sqlite_with_rowid=False,
)

memberships = sa.Table(
    "memberships",
    metadata,
    sa.Column("round_id", sa.Integer, primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True),
    sa.Column("token", sa.LargeBinary, nullable=False, unique=True, comment="its member's pseudonym in the round"),
    sa.Column("sealed", sa.LargeBinary, nullable=False, comment="samples, update digest; see ledger/pseudonyms.py"),
    sa.ForeignKeyConstraint(["round_id", "slot"], ["slots.round_id", "slots.slot"]),
    sqlite_with_rowid=False,
)

rebuilt = sa.Table(
    "rebuilt",
    metadata,
    sa.Column("round_id", sa.ForeignKey("rounds.id"), primary_key=True),
    sa.Column("mechanism", sa.String, nullable=False, comment="what rebuilt it"),
    sa.Column(
        "source", sa.ForeignKey("rounds.id"), nullable=False, unique=True, comment="whose updates it is from"
    ),
    sa.Column("epochs", sa.Integer, nullable=False, comment="what each participant trained for it"),
)

updates = sa.Table(
    "updates",
    metadata,
    sa.Column("round_id", sa.Integer, primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True),
    sa.Column("name", sa.String, nullable=False, comment="of its file; see ledger/updates.py"),
    sa.Column("stored_bytes", _LARGE, nullable=False, comment="size of the file"),
    sa.ForeignKeyConstraint(["round_id", "slot"], ["memberships.round_id", "memberships.slot"]),
    sqlite_with_rowid=False,
)

evaluations = sa.Table(
    "evaluations",
    metadata,
    sa.Column("round_id", sa.ForeignKey("rounds.id"), primary_key=True),
    sa.Column("metrics", sa.String, nullable=False, comment="JSON: what was measured, null where not finite"),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("round_id", sa.ForeignKey("rounds.id"), primary_key=True),
    sa.Column("mode", sa.String, nullable=False, comment="of the noise; see privacy/events.py"),
    sa.Column("clip", sa.Float, comment="NULL where the noise is not calibrated"),
    sa.Column("tau", sa.Float, comment="NULL where the noise is not calibrated"),
    sa.Column("rate", sa.Float, nullable=False, comment="largest chance of a client to be drawn"),
    sa.Column("weight", sa.Float, nullable=False, comment="largest weight of a cluster"),
    sa.Column("squares", sa.Float, nullable=False, comment="sum of the squared weights"),
    sa.Column("clusters", sa.Integer, nullable=False),
    sa.Column("representatives", sa.Integer, nullable=False, comment="drawn of each cluster"),
    sa.Column("fixed", sa.Boolean, nullable=False, comment="clusters settled before any data was seen, anchored"),
    sa.Column("predictable", sa.Boolean, nullable=False, comment="draws that can be repeated"),
    sa.Column("checksum", sa.LargeBinary, nullable=False, comment="of this row; see ledger/rows.py"),
)

erasures = sa.Table(
    "erasures",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("state", sa.String, nullable=False, index=True, comment="how far it has come; domain.RequestState"),
    sa.Column("rollback_to", sa.Integer, comment="the first round that it undid, if it undid any"),
    sa.Column("target", sa.Integer, comment="the last round to rebuild"),
    sa.Column("rounds_before", sa.Integer, nullable=False, comment="rows in rounds when it was opened"),
    sa.Column("mechanism", sa.String, nullable=False),
    sa.Column("opened_at", sa.String, nullable=False, comment="UTC, ISO 8601"),
    sa.Column("finished_at", sa.String, comment="UTC, ISO 8601"),
    sa.Column("rounds", sa.Integer, nullable=False, server_default="0", comment="rebuilt"),
    sa.Column("client_epochs", _LARGE, nullable=False, server_default="0"),
    sa.Column("exchanged_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("seconds", sa.Float, nullable=False, server_default="0"),
    sa.Column("remark", sa.Text, nullable=False, server_default=""),
    sa.Column("broken", sa.Integer, comment="the first broken round; NULL where it is that of rollback_to"),
    sa.Column("criterion", sa.String, comment="what does not hold there; NULL in a rebuilt round, or if deniable"),
    sa.Column(
        "purge",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="it answers no request: it undid the rounds with withdrawn slots; broken is the first of them",
    ),
    sqlite_autoincrement=True,
)

requests = sa.Table(
    "requests",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("client", sa.BigInteger, comment="its number in the keyring; NULL once it is forgotten"),
    sa.Column("asked_at", sa.String, nullable=False, comment="UTC, ISO 8601"),
    sa.Column("stream_round", sa.Integer, unique=True, comment="the round after which a request stream asked"),
    sa.Column("erasure", sa.ForeignKey("erasures.id"), index=True, comment="NULL while it waits"),
    sa.Column("verdict", sa.String),
    sa.Column("cancelled_at", sa.String, comment="UTC, ISO 8601; only a request that waits can be cancelled"),
    sa.Column("refused_at", sa.String, comment="UTC, ISO 8601; likewise"),
    sa.Column("paused_at", sa.String, comment="UTC, ISO 8601; NULL where it is not paused"),
    sa.Column("approved_at", sa.String, comment="UTC, ISO 8601; NULL where nobody has approved it"),
    sa.Column("purged_at", sa.String, comment="UTC, ISO 8601; NULL while its updates may be in the model"),
    sa.Column(
        "first_round",
        sa.ForeignKey("rounds.id"),
        comment="the first standing round with a slot that was withdrawn for it; NULL where none stands",
    ),
    sa.Column("note", sa.Text, nullable=False, server_default="", comment="why it was placed, if nobody asked"),
    sa.Column("records", sa.Integer, comment="how many it names, for a client that stays; NULL: the whole client"),
    sa.Column("successor", sa.BigInteger, comment="the client's next number in the keyring; NULL once forgotten"),
    sa.Column("word", sa.LargeBinary, comment="digest of the client's signed word that it removed the records"),
    sa.Column("nonce", sa.LargeBinary, nullable=False, comment="random: enters what closes its commitments"),
    sa.Column("checksum", sa.LargeBinary, nullable=False, comment="of what was asked; see ledger/rows.py"),
    sqlite_autoincrement=True,
)

_in_force = sa.and_(requests.c.cancelled_at.is_(None), requests.c.refused_at.is_(None))
_whole_client = sa.and_(_in_force, requests.c.records.is_(None))
sa.Index("ix_requests_client", requests.c.client, unique=True, sqlite_where=_whole_client)

# whoever is forgotten has no number there, so that these stay short however many have left
sa.Index(
    "ix_requests_known",
    requests.c.client,
    sqlite_where=requests.c.client.is_not(None),
)
sa.Index("ix_requests_waiting", requests.c.id, sqlite_where=sa.and_(requests.c.erasure.is_(None), _in_force))

# who may still be in the model, and whose last round was undone and is to be proved: the latter are always few
sa.Index("ix_requests_first_round", requests.c.first_round, sqlite_where=requests.c.first_round.is_not(None))
sa.Index(
    "ix_requests_to_be_purged",
    requests.c.id,
    sqlite_where=sa.and_(
        requests.c.erasure.is_not(None),
        requests.c.verdict != "never present",
        requests.c.first_round.is_(None),
        requests.c.purged_at.is_(None),
    ),
)

request_events = sa.Table(
    "request_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("request", sa.ForeignKey("requests.id"), nullable=False, index=True),
    sa.Column("kind", sa.String, nullable=False, comment="domain.EventKind"),
    sa.Column("at", sa.String, nullable=False, comment="UTC, ISO 8601"),
    sa.Column("until", sa.String, comment="UTC, ISO 8601: where an extension extends the deadline to"),
    sa.Column("forecast", sa.String, comment="SHA-256 of the forecast that an approval was given for"),
    sa.Column("sealed", sa.LargeBinary, comment="who did it and why; see ledger/request_events.py"),
    sa.Column("checksum", sa.LargeBinary, nullable=False, comment="of this row; see ledger/rows.py"),
    sqlite_autoincrement=True,
)

releases = sa.Table(
    "releases",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("digest", sa.String, nullable=False, comment="SHA-256 of the safetensors file that was exported"),
    sa.Column("round_id", sa.ForeignKey("rounds.id"), comment="the newest round in it; NULL: the initial model"),
    sa.Column("averaged", sa.Integer, nullable=False, comment="of how many rounds' models it is the mean"),
    sa.Column("released_at", sa.String, nullable=False, comment="UTC, ISO 8601"),
    sa.Column("sealed", sa.LargeBinary, nullable=False, comment="who received it; see ledger/releases.py"),
    sa.Column("checksum", sa.LargeBinary, nullable=False, comment="of this row; see ledger/rows.py"),
    sqlite_autoincrement=True,
)

withdrawals = sa.Table(
    "withdrawals",
    metadata,
    sa.Column("round_id", sa.Integer, primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True),
    sa.Column("erasure", sa.ForeignKey("erasures.id"), nullable=False, index=True),
    sa.Column("salt", sa.LargeBinary, comment="closes it in the leaf of its withdrawal"),
    sa.ForeignKeyConstraint(["round_id", "slot"], ["slots.round_id", "slots.slot"]),
    sqlite_with_rowid=False,
)

log = sa.Table(
    "log",
    metadata,
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False, comment="from 0, without gaps"),
    sa.Column("leaf", sa.Text, nullable=False, comment="canonical JSON; see proof/leaves.py"),
    sa.Column("hash", sa.LargeBinary, nullable=False, comment="leaf hash of RFC 6962"),
    sa.Column("round_id", sa.ForeignKey("rounds.id"), unique=True, comment="the round it logs"),
    sa.Column("erasure", sa.ForeignKey("erasures.id"), comment="whose withdrawal, rollback or purge it logs"),
    sa.Column("clusters", sa.LargeBinary, comment="the leaf hashes of a round's clusters"),
    sa.Column("frontier", sa.LargeBinary, nullable=False, comment="roots of the perfect subtrees up to here"),
    sa.Column("head", sa.Text, comment="the checkpoint signed when this was the last leaf; NULL if it was not"),
    # the leaves of an erasure, and the last leaf that is of none, however many withdrawals follow it
    sa.Index("ix_log_erasure_position", "erasure", "position"),
)
sa.Index(
    "ix_log_keys",
    log.c.position,
    sqlite_where=sa.and_(log.c.round_id.is_(None), log.c.erasure.is_(None)),
)

cosignatures = sa.Table(
    "cosignatures",
    metadata,
    sa.Column("position", sa.ForeignKey("log.position"), primary_key=True, comment="the last leaf of the head"),
    sa.Column("witness", sa.String, primary_key=True, comment="its verifier key"),
    sa.Column("line", sa.Text, nullable=False, comment="as a checkpoint has it; see proof/cosignatures.py"),
    sa.Index("ix_cosignatures_witness_position", "witness", "position"),
    sqlite_with_rowid=False,
)
