-- Recorded with the option binary = true.
create table t (id int primary key, a text, n numeric);
insert into t values (258, 'text', 1.5), (-1, null, null);
