"""Places orders. Each order and its event are written in one transaction."""

import json
import os
import sys

import psycopg


def place_order(connection: psycopg.Connection, customer: str, total_cents: int) -> int:
    # Both rows are committed together, or neither is.
    with connection.transaction():
        row = connection.execute(
            "INSERT INTO orders (customer, total_cents) VALUES (%s, %s) RETURNING id",
            (customer, total_cents),
        ).fetchone()
        order_id = row[0]
        event = {"order_id": order_id, "customer": customer, "total_cents": total_cents}
        connection.execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', %s, 'OrderPlaced', %s)",
            (str(order_id), json.dumps(event)),
        )
    return order_id


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    # Without autocommit, psycopg would begin a transaction of its own around all orders.
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for number in range(count):
            order_id = place_order(connection, f"customer-{number % 7}", 100 + number)
            print(f"placed order {order_id}", flush=True)


if __name__ == "__main__":
    main()
