create table outbox (
  id            uuid primary key default gen_random_uuid(),
  aggregatetype text not null,
  aggregateid   text not null,
  type          text not null,
  payload       jsonb not null
);
