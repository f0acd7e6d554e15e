-- Two transactions replayed from another server, one of our own between them.
create table t (id int primary key);
select pg_replication_origin_create('walferry_upstream');
select pg_replication_origin_session_setup('walferry_upstream');
begin;
select pg_replication_origin_xact_setup('16/B374D848', '2024-07-22 21:46:40.123456+00');
insert into t values (1);
commit;
select pg_replication_origin_session_reset();
insert into t values (2);
select pg_replication_origin_session_setup('walferry_upstream');
begin;
select pg_replication_origin_xact_setup('16/B374D900', '2024-07-22 21:46:41+00');
insert into t values (3);
commit;
select pg_replication_origin_session_reset();
select pg_replication_origin_drop('walferry_upstream');
