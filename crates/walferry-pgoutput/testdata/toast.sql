-- A value stored out of line, without compression, is not in the log when an update leaves it alone.
create table documents (id int primary key, title text, body text);
alter table documents alter body set storage external;
insert into documents values (1, 'one', repeat('x', 2100)), (2, 'two', null);
update documents set title = 'ONE' where id = 1;
update documents set title = 'TWO' where id = 2;
update documents set id = 10 where id = 1;
alter table documents replica identity full;
update documents set title = 'one' where id = 10;
