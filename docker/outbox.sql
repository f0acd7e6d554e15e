-- The role of the connector: it may read the slot, and nothing else. Choose another password.
create role cdc login replication password 'cdc';

create table outbox (
  id            uuid primary key default gen_random_uuid(),
  aggregatetype text not null,
  aggregateid   text not null,
  type          text not null,
  payload       jsonb,
  headers       jsonb,
  created_at    timestamptz not null default now()
);
create index outbox_created_at_idx on outbox (created_at);

create publication outbox for table outbox;
