-- Types of one's own are named before the relation that uses them; domains by their own id, arrays by theirs.
create schema "Lager";
create type "Lager"."Größe" as enum ('klein', 'groß');
create domain email as text check (value like '%@%');
create domain size_domain as "Lager"."Größe";
create type point3 as (x float8, y float8, z float8);
create table "Lager"."Artikel ""A""" (
    id bigint primary key, "Größe" "Lager"."Größe", contact email, nested size_domain, tags email[], p point3,
    name varchar(20), price numeric(10, 2), at timestamptz(3), on_day date, raw bytea, doc jsonb, ok boolean
);
insert into "Lager"."Artikel ""A""" values (
    1, 'groß', 'a@b', 'klein', '{c@d,NULL}', '(1,2.5,-3)',
    'n', 12.5, '2024-07-22 21:46:40.123456+00', '2024-02-29', '\xdeadbeef', '{"k": [1, null]}', true
);
