-- The role of the connector: it may read the slot, and nothing else. Choose another password.
create role cdc login replication password 'cdc';

create table outbox (
  id            uuid primary key default gen_random_uuid(),
  aggregatetype text not null,
  aggregateid   text not null,
  type          text not null,
  payload       jsonb not null
);

create publication outbox for table outbox;
