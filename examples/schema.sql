-- The database of the shop.

CREATE TABLE orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer text NOT NULL,
  total_cents bigint NOT NULL
);

-- As `walferry outbox create` writes it.
CREATE TABLE outbox (
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  aggregatetype text NOT NULL,
  aggregateid text NOT NULL,
  type text NOT NULL,
  payload jsonb,
  headers jsonb,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (id)
);
CREATE INDEX outbox_created_at_idx ON outbox (created_at);
CREATE PUBLICATION shop FOR TABLE outbox;

-- The database of the shipping department.

CREATE TABLE shipments (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  order_id bigint NOT NULL,
  customer text NOT NULL
);

-- As `walferry inbox create --id-type uuid` writes it.
CREATE TABLE inbox (
  message_id uuid NOT NULL,
  consumer text NOT NULL,
  received_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (message_id, consumer)
);
CREATE INDEX inbox_received_at_idx ON inbox (received_at);
