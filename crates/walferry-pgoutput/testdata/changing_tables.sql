-- A relation is described again when it may have changed.
create table t (id int primary key, a text);
insert into t values (1, 'a');
alter table t add b int default 7;
insert into t values (2, 'b', 8);
alter table t drop a;
insert into t values (3, 9);
begin;
alter table t rename b to c;
insert into t values (4, 10);
alter table t alter c type text;
insert into t values (5, 'eleven');
commit;
