-- Only what is not transactional outlives a rollback.
select pg_logical_emit_message(true, 'outbox', 'transactional');
select pg_logical_emit_message(false, 'outbox', 'immediate');
begin;
select pg_logical_emit_message(true, 'p', 'rolled back');
select pg_logical_emit_message(false, 'p', 'stays');
rollback;
create table t (id int primary key);
begin;
insert into t values (1);
select pg_logical_emit_message(false, '', '\x00ff'::bytea);
select pg_logical_emit_message(true, 'größer', '');
commit;
