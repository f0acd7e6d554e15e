// Ships orders. Each event is processed once, also if it comes twice.

import { Kafka, logLevel } from "kafkajs";
import pg from "pg";

const CONSUMER = "shipping";
const TOPIC = "outbox.event.order";

async function processEvent(client, message) {
  const eventId = message.headers.id.toString();
  // The id and the work are committed together, or neither is.
  await client.query("BEGIN");
  try {
    const noted = await client.query(
      "INSERT INTO inbox (message_id, consumer) VALUES ($1, $2) ON CONFLICT DO NOTHING",
      [eventId, CONSUMER],
    );
    if (noted.rowCount === 0) {
      console.log(`seen before: ${eventId}`);
    } else if (message.headers.eventType.toString() === "OrderPlaced") {
      await ship(client, JSON.parse(message.value.toString()));
    }
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

async function ship(client, event) {
  await client.query("INSERT INTO shipments (order_id, customer) VALUES ($1, $2)", [event.order_id, event.customer]);
  console.log(`shipped order ${event.order_id}`);
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
const kafka = new Kafka({
  clientId: CONSUMER,
  brokers: process.env.KAFKA_BOOTSTRAP.split(","),
  logLevel: logLevel.ERROR,
});
const consumer = kafka.consumer({ groupId: CONSUMER });
await consumer.connect();
await consumer.subscribe({ topics: [TOPIC], fromBeginning: true });
await consumer.run({
  // The offset is committed below, after the database.
  autoCommit: false,
  // One message at a time: they share one connection to the database.
  partitionsConsumedConcurrently: 1,
  eachMessage: async ({ topic, partition, message }) => {
    await processEvent(client, message);
    // A crash before this line brings the event again. The inbox recognises it.
    const offset = (BigInt(message.offset) + 1n).toString();
    await consumer.commitOffsets([{ topic, partition, offset }]);
  },
});

for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, async () => {
    await consumer.disconnect();
    await client.end();
    process.exit(0);
  });
}
