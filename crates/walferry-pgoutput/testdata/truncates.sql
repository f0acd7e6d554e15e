create table parents (id serial primary key);
create table children (id serial primary key, parent int references parents);
create table others (id int primary key);
truncate others;
truncate parents cascade;
truncate others, parents, children restart identity;
truncate parents restart identity cascade;
