// Places orders. Each order and its event are written in one transaction.

import pg from "pg";

async function placeOrder(client, customer, totalCents) {
  // Both rows are committed together, or neither is.
  await client.query("BEGIN");
  try {
    const order = await client.query(
      "INSERT INTO orders (customer, total_cents) VALUES ($1, $2) RETURNING id",
      [customer, totalCents],
    );
    const orderId = Number(order.rows[0].id);
    const event = { order_id: orderId, customer, total_cents: totalCents };
    await client.query(
      "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', $1, 'OrderPlaced', $2)",
      [String(orderId), JSON.stringify(event)],
    );
    await client.query("COMMIT");
    return orderId;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

const count = Number(process.argv[2] ?? 10);
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
for (let number = 0; number < count; number++) {
  const orderId = await placeOrder(client, `customer-${number % 7}`, 100 + number);
  console.log(`placed order ${orderId}`);
}
await client.end();
