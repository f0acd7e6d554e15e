-- Replica identity DEFAULT is in rows.sql; here FULL, USING INDEX, NOTHING, and DEFAULT without a primary key.
create table full_row (id int primary key, a text, b text);
alter table full_row replica identity full;
insert into full_row values (1, 'a', null);
update full_row set a = 'b';
delete from full_row;
create table by_index (id int primary key, code text not null, a text);
create unique index by_index_code on by_index (code);
alter table by_index replica identity using index by_index_code;
insert into by_index values (1, 'x', 'a');
update by_index set a = 'b';
update by_index set code = 'y';
delete from by_index;
create table no_identity (id int primary key, a text);
alter table no_identity replica identity nothing;
insert into no_identity values (1, 'a');
create table keyless (a text);
insert into keyless values ('a');
