-- One row a name. kind…source: who brought it into being. agent: whether an agent ever made or wrote to it.
-- next_*: who is known to have written what will be seen as its next version.
CREATE TABLE tools (
        name TEXT PRIMARY KEY,
        kind TEXT, session TEXT, worker TEXT, source TEXT,
        agent INTEGER NOT NULL DEFAULT 0,
        next_kind TEXT, next_session TEXT, next_worker TEXT, next_source TEXT,
        retired_at TEXT,
        runs INTEGER NOT NULL DEFAULT 0,
        first_session TEXT, reused INTEGER NOT NULL DEFAULT 0,
        rating_offered INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;

CREATE TABLE versions (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, digest TEXT NOT NULL, at TEXT NOT NULL,
        kind TEXT NOT NULL, session TEXT NOT NULL, worker TEXT NOT NULL, source TEXT NOT NULL
    );
CREATE INDEX versions_of ON versions (name, id);
CREATE INDEX versions_with ON versions (digest, name);

-- What is known of exactly these bytes under this name. trust_order: which was trusted last, whatever clocks do.
CREATE TABLE digests (
        name TEXT NOT NULL, digest TEXT NOT NULL,
        built INTEGER NOT NULL DEFAULT 0, tested INTEGER NOT NULL DEFAULT 0,
        failure_code TEXT, failure_message TEXT,
        denials INTEGER NOT NULL DEFAULT 0,
        trusted_at TEXT, trusted_by TEXT, shadow INTEGER NOT NULL DEFAULT 0, trust_order INTEGER,
        PRIMARY KEY (name, digest)
    ) WITHOUT ROWID;

-- declared: told by who made it, otherwise a folder that appeared.
CREATE TABLE creations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, at TEXT NOT NULL, kind TEXT NOT NULL,
        declared INTEGER NOT NULL, suggestion TEXT NOT NULL DEFAULT '', sequence_ms REAL NOT NULL DEFAULT 0,
        built INTEGER NOT NULL DEFAULT 0, tested INTEGER NOT NULL DEFAULT 0, activated INTEGER NOT NULL DEFAULT 0
    );
CREATE INDEX creations_of ON creations (name, id);

CREATE TABLE uses (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, digest TEXT NOT NULL, status TEXT NOT NULL,
        ran INTEGER NOT NULL, duration_ms REAL NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL, at TEXT NOT NULL
    );
CREATE INDEX uses_of ON uses (name, id);

-- What became of uses that were too many to keep one by one.
CREATE TABLE tallies (
        name TEXT NOT NULL, digest TEXT NOT NULL, status TEXT NOT NULL, ran INTEGER NOT NULL,
        calls INTEGER NOT NULL, total_ms REAL NOT NULL, last_at TEXT NOT NULL,
        PRIMARY KEY (name, digest, status, ran)
    ) WITHOUT ROWID;

CREATE TABLE ratings (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, at TEXT NOT NULL, good INTEGER NOT NULL,
        note TEXT NOT NULL
    );
CREATE INDEX ratings_of ON ratings (name, id);

CREATE TABLE refreshes (id INTEGER PRIMARY KEY AUTOINCREMENT, ms REAL NOT NULL);

CREATE TABLE stamp (n INTEGER NOT NULL);
INSERT INTO stamp VALUES (0);
