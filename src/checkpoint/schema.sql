-- The whole state of one pipeline. The words of `state` are those of `FileState` and `BatchState`.

CREATE TABLE meta (
    one                INTEGER PRIMARY KEY CHECK (one = 1),
    pipeline_id        TEXT    NOT NULL CHECK (pipeline_id <> ''),
    source_path        TEXT    NOT NULL,
    epoch              INTEGER NOT NULL CHECK (epoch >= 1),
    next_batch_id      INTEGER NOT NULL CHECK (next_batch_id >= 1),
    applied_up_to      INTEGER CHECK (applied_up_to >= 0),
    first_listing_done INTEGER NOT NULL CHECK (first_listing_done IN (0, 1)),
    last_error         TEXT,
    created_at         INTEGER NOT NULL
) STRICT;

CREATE TABLE batches (
    batch_id       INTEGER PRIMARY KEY CHECK (batch_id >= 1),
    epoch          INTEGER NOT NULL CHECK (epoch >= 1),
    state          TEXT    NOT NULL CHECK (state IN ('planned', 'loaded', 'applied', 'abandoned')),
    planned_at     INTEGER NOT NULL,
    bronze_version INTEGER CHECK (bronze_version >= 0),
    silver_version INTEGER CHECK (silver_version >= 0),
    files          INTEGER NOT NULL DEFAULT 0 CHECK (files >= 0),
    rows           INTEGER NOT NULL DEFAULT 0 CHECK (rows >= 0),
    rows_inserted  INTEGER NOT NULL DEFAULT 0 CHECK (rows_inserted >= 0),
    rows_updated   INTEGER NOT NULL DEFAULT 0 CHECK (rows_updated >= 0),
    rows_deleted   INTEGER NOT NULL DEFAULT 0 CHECK (rows_deleted >= 0),
    rows_late      INTEGER NOT NULL DEFAULT 0 CHECK (rows_late >= 0),
    rows_repeated  INTEGER NOT NULL DEFAULT 0 CHECK (rows_repeated >= 0),
    conflicts      INTEGER NOT NULL DEFAULT 0 CHECK (conflicts >= 0),
    seconds        REAL    NOT NULL DEFAULT 0 CHECK (seconds >= 0),
    CHECK (state NOT IN ('planned', 'abandoned') OR (bronze_version IS NULL AND silver_version IS NULL))
) STRICT;

CREATE INDEX batches_by_state ON batches (state, bronze_version);

CREATE TABLE files (
    path               TEXT    PRIMARY KEY CHECK (path <> ''),
    state              TEXT    NOT NULL CHECK (state IN ('pending', 'planned', 'loaded', 'parked', 'cleaned')),
    size               INTEGER NOT NULL CHECK (size >= 0),
    modified_at        INTEGER NOT NULL,
    content_hash       TEXT    CHECK (length(content_hash) = 64),
    rows_loaded        INTEGER NOT NULL DEFAULT 0 CHECK (rows_loaded >= 0),
    rows_quarantined   INTEGER NOT NULL DEFAULT 0 CHECK (rows_quarantined >= 0),
    batch_id           INTEGER REFERENCES batches (batch_id),
    bronze_version     INTEGER CHECK (bronze_version >= 0),
    discovered_at      INTEGER NOT NULL,
    loaded_at          INTEGER,
    attempts           INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    next_try_at        INTEGER,
    reason             TEXT,
    detail             TEXT,
    replaces           INTEGER NOT NULL DEFAULT 0 CHECK (replaces IN (0, 1)),
    loaded_size        INTEGER CHECK (loaded_size >= 0),
    loaded_modified_at INTEGER,
    CHECK (state <> 'planned' OR batch_id IS NOT NULL),
    CHECK (state <> 'parked' OR reason IS NOT NULL),
    CHECK (state NOT IN ('loaded', 'cleaned') OR loaded_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX files_by_state ON files (state, path);

-- What decoding found for the planned batch; empty when no batch is planned.
CREATE TABLE outcomes (
    batch_id     INTEGER NOT NULL REFERENCES batches (batch_id),
    path         TEXT    NOT NULL REFERENCES files (path),
    kind         TEXT    NOT NULL CHECK (kind IN ('loaded', 'parked', 'again', 'vanished', 'duplicate')),
    content_hash TEXT    CHECK (length(content_hash) = 64),
    rows         INTEGER NOT NULL DEFAULT 0 CHECK (rows >= 0),
    quarantined  INTEGER NOT NULL DEFAULT 0 CHECK (quarantined >= 0),
    reason       TEXT,
    detail       TEXT,
    next_try_at  INTEGER,
    PRIMARY KEY (batch_id, path),
    CHECK (kind <> 'parked' OR reason IS NOT NULL),
    CHECK (kind <> 'duplicate' OR detail IS NOT NULL)
) STRICT, WITHOUT ROWID;
