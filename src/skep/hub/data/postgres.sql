-- The schema of skep in a PostgreSQL database, in migrations that `skep.hub.postgres` runs in order.
-- The role that runs them owns everything. Other roles get in by `SELECT skep.admit('role', 'bank')`.

-- migration 1: the log
CREATE TABLE skep.logs(
    bank text PRIMARY KEY,
    log text NOT NULL DEFAULT gen_random_uuid()::text,
    bank_id text,
    last bigint NOT NULL DEFAULT 0
);
CREATE TABLE skep.events(
    bank text NOT NULL,
    seq bigint NOT NULL,
    actor text NOT NULL,
    counter bigint NOT NULL,
    hlc bigint NOT NULL,
    kind text NOT NULL,
    body json NOT NULL, -- not jsonb: a signature is over these very characters
    signature bytea,
    PRIMARY KEY (bank, seq),
    UNIQUE (bank, actor, counter)
);
CREATE TABLE skep.snapshots(
    bank text PRIMARY KEY REFERENCES skep.logs ON DELETE CASCADE,
    id text NOT NULL,
    seen json NOT NULL,
    place text NOT NULL
);
CREATE TABLE skep.snapshot_parts(
    bank text NOT NULL REFERENCES skep.snapshots ON DELETE CASCADE,
    part int NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (bank, part)
);
ALTER TABLE skep.snapshot_parts ALTER content SET STORAGE EXTERNAL;

-- migration 2: who may do what, the verbs, and the view for people
CREATE TABLE skep.admitted(
    role text NOT NULL,
    bank text NOT NULL,
    scope_user text, -- null: any; so for the project
    scope_project text,
    writes boolean NOT NULL DEFAULT true
);

-- Rights are those of the role that asks, also inside of functions that run as the owner.
CREATE FUNCTION skep.owns(who text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT pg_has_role(who, (SELECT relowner FROM pg_class WHERE oid = 'skep.events'::regclass), 'MEMBER')
$$;
CREATE FUNCTION skep.sees_all(who text, asked text) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT skep.owns(who) OR EXISTS (
        SELECT 1 FROM skep.admitted a WHERE a.bank = asked AND a.scope_user IS NULL AND a.scope_project IS NULL
            AND pg_has_role(who, a.role, 'MEMBER'))
$$;
CREATE FUNCTION skep.admits(who text, asked text, event_kind text, event_body json) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    -- The memories an event speaks of; those of a `remember` are itself. A memory has the scope it was born with.
    about text[] := (
        SELECT array_agg(name) FROM (
            SELECT event_body->>key AS name FROM unnest(ARRAY['memory', 'old', 'new', 'loser', 'winner', 'src', 'dst']) key
            UNION ALL
            SELECT json_array_elements_text(event_body->key) FROM unnest(ARRAY['used', 'mentions']) key
            WHERE json_typeof(event_body->key) = 'array'
            UNION ALL
            SELECT json_object_keys(event_body->'counts') WHERE json_typeof(event_body->'counts') = 'object'
        ) names WHERE name IS NOT NULL);
    allowed record;
BEGIN
    IF event_kind = 'forget' OR (event_kind = 'setting' AND event_body->>'key' LIKE 'replica/%') THEN
        RETURN EXISTS (SELECT 1 FROM skep.admitted a WHERE a.bank = asked AND pg_has_role(who, a.role, 'MEMBER'));
    END IF;
    FOR allowed IN SELECT * FROM skep.admitted a WHERE a.bank = asked AND pg_has_role(who, a.role, 'MEMBER') LOOP
        IF event_kind = 'remember' THEN
            IF (allowed.scope_user IS NULL OR event_body->'scope'->>'user' = allowed.scope_user)
                AND (allowed.scope_project IS NULL OR event_body->'scope'->>'project' = allowed.scope_project) THEN
                RETURN true;
            END IF;
        ELSIF about IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM unnest(about) name WHERE NOT EXISTS (
                SELECT 1 FROM skep.events e
                WHERE e.bank = asked AND e.kind = 'remember'
                    AND e.actor = regexp_replace(name, '-[0-9]+$', '')
                    AND e.counter = substring(name FROM '-([0-9]{1,18})$')::bigint
                    AND (allowed.scope_user IS NULL OR e.body->'scope'->>'user' = allowed.scope_user)
                    AND (allowed.scope_project IS NULL OR e.body->'scope'->>'project' = allowed.scope_project)
            )
        ) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;

ALTER TABLE skep.events ENABLE ROW LEVEL SECURITY;
ALTER TABLE skep.logs ENABLE ROW LEVEL SECURITY;
ALTER TABLE skep.snapshots ENABLE ROW LEVEL SECURITY;
ALTER TABLE skep.snapshot_parts ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_bank_and_scope ON skep.events FOR SELECT
    USING (skep.sees_all(current_user, bank) OR skep.admits(current_user, bank, kind, body));
CREATE POLICY of_bank ON skep.logs FOR SELECT USING (
    skep.sees_all(current_user, bank) OR skep.admits(current_user, bank, 'forget', '{}'));
CREATE POLICY of_bank ON skep.snapshots FOR SELECT USING (skep.sees_all(current_user, bank));
CREATE POLICY of_bank ON skep.snapshot_parts FOR SELECT USING (skep.sees_all(current_user, bank));

CREATE FUNCTION skep.refuse(who text, asked text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE insufficient_privilege USING MESSAGE = format('role %s may not write that to bank %s', who, asked);
END $$;
CREATE FUNCTION skep.writes(who text, asked text) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT skep.owns(who) OR EXISTS (
        SELECT 1 FROM skep.admitted a WHERE a.bank = asked AND a.writes AND pg_has_role(who, a.role, 'MEMBER'))
$$;

-- One call, one round trip. The row of the log is locked from here to the commit, so that events become visible in the
-- order of their numbers, and a reader never passes over one that commits late.
CREATE FUNCTION skep.append(
    asked text, actors text[], counters bigint[], hlcs bigint[], kinds text[], bodies text[], signatures bytea[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    who text := session_user;
    before bigint;
BEGIN
    UPDATE skep.logs SET last = last + cardinality(actors) WHERE bank = asked
        RETURNING last - cardinality(actors) INTO before;
    INSERT INTO skep.events
        SELECT asked, before + n, actor, counter, hlc, kind, body::json, signature
        FROM unnest(actors, counters, hlcs, kinds, bodies, signatures)
            WITH ORDINALITY AS e(actor, counter, hlc, kind, body, signature, n)
        ON CONFLICT (bank, actor, counter) DO NOTHING;
    IF NOT skep.owns(who) THEN
        IF NOT skep.writes(who, asked) THEN PERFORM skep.refuse(who, asked); END IF;
        IF NOT skep.sees_all(who, asked) THEN
            PERFORM skep.refuse(who, asked) FROM unnest(kinds, bodies) AS e(kind, body)
                WHERE NOT skep.admits(who, asked, kind, body::json);
        END IF;
    END IF;
    PERFORM pg_notify('skep', asked);
END $$;
CREATE FUNCTION skep.claim(asked text, id text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    found text;
BEGIN
    SELECT bank_id INTO found FROM skep.logs WHERE bank = asked;
    IF found IS NULL THEN
        IF NOT skep.writes(session_user, asked) THEN PERFORM skep.refuse(session_user, asked); END IF;
        UPDATE skep.logs SET bank_id = coalesce(bank_id, id) WHERE bank = asked RETURNING bank_id INTO found;
    END IF;
    RETURN found;
END $$;
CREATE FUNCTION skep.begin_log(asked text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NOT skep.writes(session_user, asked) THEN PERFORM skep.refuse(session_user, asked); END IF;
    INSERT INTO skep.logs(bank) VALUES (asked) ON CONFLICT DO NOTHING;
END $$;
CREATE FUNCTION skep.erase(asked text, actors text[], counters bigint[], bodies text[], signatures bytea[], drop_snapshot boolean)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NOT skep.writes(session_user, asked) THEN PERFORM skep.refuse(session_user, asked); END IF;
    UPDATE skep.events e SET body = n.body::json, signature = n.signature
        FROM unnest(actors, counters, bodies, signatures) AS n(actor, counter, body, signature)
        WHERE e.bank = asked AND e.actor = n.actor AND e.counter = n.counter
            AND (skep.sees_all(session_user, asked) OR skep.admits(session_user, asked, e.kind, e.body));
    IF drop_snapshot THEN DELETE FROM skep.snapshots WHERE bank = asked; END IF;
END $$;
CREATE FUNCTION skep.put_snapshot(asked text, new_id text, new_seen text, new_place text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NOT (skep.writes(session_user, asked) AND skep.sees_all(session_user, asked)) THEN
        PERFORM skep.refuse(session_user, asked);
    END IF;
    DELETE FROM skep.snapshots WHERE bank = asked;
    INSERT INTO skep.snapshots VALUES (asked, new_id, new_seen::json, new_place);
END $$;
CREATE FUNCTION skep.put_part(asked text, new_id text, number int, bytes bytea) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    INSERT INTO skep.snapshot_parts SELECT asked, number, bytes FROM skep.snapshots WHERE bank = asked AND id = new_id
$$;

-- Let a role read and write a bank; with a user or a project, memories of that scope alone.
CREATE FUNCTION skep.admit(who text, to_bank text, only_user text DEFAULT NULL, only_project text DEFAULT NULL, may_write boolean DEFAULT true)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO skep.admitted VALUES (who, to_bank, only_user, only_project, may_write);
    EXECUTE format('GRANT USAGE ON SCHEMA skep TO %I', who);
    EXECUTE format('GRANT SELECT ON skep.version, skep.logs, skep.events, skep.snapshots, skep.snapshot_parts, skep.memories TO %I', who);
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA skep TO %I', who);
END $$;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA skep FROM PUBLIC;

-- What holds now, for people who read with SQL. A bank folds the same log more finely: see docs/DOMAIN_MODEL.md.
CREATE VIEW skep.memories WITH (security_invoker = true) AS
WITH undone AS (
    SELECT u.bank, u.body->>'event' AS event FROM skep.events u
    WHERE u.kind = 'undo' AND NOT EXISTS (
        SELECT 1 FROM skep.events v
        WHERE v.bank = u.bank AND v.kind = 'undo' AND v.body->>'event' = u.actor || '-' || u.counter)
), told AS (
    SELECT e.*, e.actor || '-' || e.counter AS id FROM skep.events e
    WHERE NOT EXISTS (SELECT 1 FROM undone u WHERE u.bank = e.bank AND u.event = e.actor || '-' || e.counter)
), moved AS (
    SELECT bank, coalesce(body->>'memory', body->>'old', body->>'loser') AS id,
        (array_agg(CASE kind WHEN 'retract' THEN 'retracted' WHEN 'supersede' THEN 'superseded' WHEN 'merge' THEN 'merged'
            WHEN 'restore' THEN 'active' ELSE body->>'status' END ORDER BY hlc DESC, actor DESC, counter DESC))[1] AS status
    FROM told WHERE kind IN ('retract', 'restore', 'supersede', 'merge', 'mark') GROUP BY 1, 2
), changed AS (
    SELECT bank, body->>'memory' AS id, key,
        (array_agg(value ORDER BY hlc DESC, actor DESC, counter DESC))[1] AS value
    FROM told, json_each(body->'changes') WHERE kind = 'revise' AND json_typeof(body->'changes') = 'object' GROUP BY 1, 2, 3
), fields AS (
    SELECT bank, id, jsonb_object_agg(key, value) AS fields FROM changed GROUP BY 1, 2
)
SELECT t.bank, t.id, row_now->>'text' AS text, row_now->>'title' AS title, coalesce(row_now->>'kind', 'fact') AS kind,
    row_now->>'agent' AS agent, row_now->'scope'->>'user' AS scope_user, row_now->'scope'->>'project' AS scope_project,
    row_now->'tags' AS tags, coalesce(m.status, 'active') AS status,
    to_timestamp(coalesce((t.body->>'created_at')::float8, (t.hlc >> 16) / 1000.0)) AS created
FROM told t LEFT JOIN fields f USING (bank, id) LEFT JOIN moved m USING (bank, id),
    LATERAL (SELECT t.body::jsonb || coalesce(f.fields, '{}') AS row_now) now
WHERE t.kind = 'remember' AND t.body->>'text' IS NOT NULL;
