"""Ships orders. Each event is processed once, also if it comes twice."""

import json
import os
import signal

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

CONSUMER = "shipping"
TOPIC = "outbox.event.order"


def process(connection: psycopg.Connection, message: Message) -> bool:
    """Returns whether the event was new."""
    headers = dict(message.headers() or [])
    event_id = headers["id"].decode()
    # The id and the work are committed together, or neither is.
    with connection.transaction():
        noted = connection.execute(
            "INSERT INTO inbox (message_id, consumer) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (event_id, CONSUMER),
        )
        if noted.rowcount == 0:
            print(f"seen before: {event_id}", flush=True)
            return False
        if headers["eventType"] == b"OrderPlaced":
            ship(connection, json.loads(message.value()))
    return True


def ship(connection: psycopg.Connection, event: dict) -> None:
    connection.execute(
        "INSERT INTO shipments (order_id, customer) VALUES (%s, %s)",
        (event["order_id"], event["customer"]),
    )
    print(f"shipped order {event['order_id']}", flush=True)


def main() -> None:
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"],
            "group.id": CONSUMER,
            # The offset is committed below, after the database.
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        while running:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                # The topic is created with the first event.
                if message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise KafkaException(message.error())
            process(connection, message)
            # A crash before this line brings the event again. The inbox recognises it.
            consumer.commit(message=message, asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main()
