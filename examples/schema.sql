-- The role of the connector: it may read the slot, and nothing else.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'shop_cdc') THEN
    CREATE ROLE shop_cdc LOGIN REPLICATION PASSWORD 'secret';
  END IF;
END
$$;

-- The database of the shop.

CREATE TABLE orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer text NOT NULL,
  total_cents bigint NOT NULL
);

-- From here to the shipping department: what `walferry outbox create --publication shop` prints.

-- The outbox table public.outbox.
BEGIN;
-- This script is in UTF-8.
SET LOCAL client_encoding = 'UTF8';
-- Only objects of Postgres itself are found without their schema.
SET LOCAL search_path = pg_catalog, pg_temp;

-- One row is one event. Insert it in the transaction that changes the data.
-- Never update a row: an update is not sent.
CREATE TABLE public.outbox (
  -- Becomes the header "id", by which consumers recognise an event that comes twice.
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  -- Chooses the topic: outbox.event.<aggregatetype>, unless the connector says otherwise.
  aggregatetype text NOT NULL,
  -- Becomes the key of the record. Events of one key stay in order.
  aggregateid text NOT NULL,
  -- The type of the event, such as OrderPlaced.
  type text NOT NULL,
  -- Becomes the value of the record. NULL makes a tombstone.
  payload jsonb,
  -- A JSON object, each member of which becomes a header, such as traceparent. NULL for none.
  headers jsonb,
  -- Becomes the timestamp of the record, and says how old the row is.
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (id)
);

-- Finds old rows, so that removing them does not read the whole table.
CREATE INDEX outbox_created_at_idx ON public.outbox (created_at);

-- When a row is removed, only its key is written to the WAL. FULL would write the whole event a second time.
ALTER TABLE public.outbox REPLICA IDENTITY DEFAULT;

-- Publishes the changes of the table. Postgres sends a connector only what its publication has.
-- If the publication exists, the table is added to it.
DO $walferry$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = 'shop') THEN
    CREATE PUBLICATION shop FOR TABLE public.outbox;
  ELSIF NOT (SELECT puballtables FROM pg_catalog.pg_publication WHERE pubname = 'shop') THEN
    ALTER PUBLICATION shop ADD TABLE public.outbox;
  END IF;
END
$walferry$;

-- Let each application that writes events insert rows:
-- GRANT INSERT ON public.outbox TO role_of_the_application;

COMMIT;

-- Options of the connector for this table. If it captures other tables, add this one to their list:
-- {
--   "table.include.list": "public.outbox",
--   "transforms": "outbox",
--   "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
--   "transforms.outbox.table.field.event.timestamp": "created_at",
--   "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
--   "transforms.outbox.walferry.headers.from": "headers"
-- }

-- The database of the shipping department.

CREATE TABLE shipments (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  order_id bigint NOT NULL,
  customer text NOT NULL
);

-- From here on: what `walferry inbox create --id-type uuid` prints.

-- The inbox table public.inbox, in the database of the consumer.
BEGIN;
-- This script is in UTF-8.
SET LOCAL client_encoding = 'UTF8';
-- Only objects of Postgres itself are found without their schema.
SET LOCAL search_path = pg_catalog, pg_temp;

-- One row says that one consumer has processed one event. Insert it in the transaction that does the work.
CREATE TABLE public.inbox (
  -- The header "id" of the record. An event that comes twice has the same id both times.
  message_id uuid NOT NULL,
  -- The name of the consumer, so that several consumers can share the table.
  consumer text NOT NULL,
  -- When it was processed. Old rows are removed by it.
  received_at timestamptz NOT NULL DEFAULT now(),
  -- Makes the second insert of the same event by the same consumer do nothing. If two processes work on one event at the same
  -- time, the second one waits here until the first has committed or failed.
  PRIMARY KEY (message_id, consumer)
);

-- Finds old rows, so that removing them does not read the whole table.
CREATE INDEX inbox_received_at_idx ON public.inbox (received_at);

-- Removes rows that are older than 7 days, at most 10000 with one call, and returns how many it has removed.
-- Keep ids for longer than an event may come again: longer than the retention of the topic, if a consumer may be set
-- back to its beginning, and longer than a connector may be stopped or restored from a backup.
-- Schedule it every few minutes, for example with pg_cron:
--   SELECT cron.schedule('*/5 * * * *', 'SELECT public.inbox_cleanup()');
-- or with cron on any machine:
--   */5 * * * * psql -c 'SELECT public.inbox_cleanup()'
CREATE FUNCTION public.inbox_cleanup(keep interval DEFAULT interval '7 days', most integer DEFAULT 10000)
RETURNS bigint LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $walferry$
  WITH gone AS (
    DELETE FROM public.inbox WHERE ctid = ANY (ARRAY(
      -- Rows that another call removes at the same moment are left to it.
      SELECT ctid FROM public.inbox WHERE received_at < now() - keep ORDER BY received_at LIMIT most FOR UPDATE SKIP LOCKED))
    RETURNING 1)
  SELECT count(*) FROM gone
$walferry$;

-- Let the role of each consumer insert rows:
-- GRANT SELECT, INSERT ON public.inbox TO role_of_the_consumer;

COMMIT;

-- In the transaction that does the work, before the work:
--   INSERT INTO public.inbox (message_id, consumer) VALUES ($1, 'name of the consumer') ON CONFLICT DO NOTHING;
-- If it inserts a row, do the work. If it inserts none, the event was processed before: skip the work.
-- Commit, and only then commit the offset in Kafka.
