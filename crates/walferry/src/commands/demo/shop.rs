//! The application of the demo: a shop whose orders are placed, paid and shipped, each step with its event in one transaction.

use serde_json::{Value, json};

/// The tables of the shop. The outbox is that of `walferry outbox create`.
pub(super) const TABLES: &str = "\
CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, total numeric NOT NULL, status text NOT NULL);
CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text NOT NULL,
                     type text NOT NULL, payload jsonb, headers jsonb, created_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX outbox_created_at_idx ON outbox (created_at);";

/// Topics that the events go to.
pub(super) const TOPICS: [&str; 2] = ["outbox.event.order", "outbox.event.customer"];

const CUSTOMERS: [&str; 8] = [
    "Ada", "Grace", "Linus", "Margaret", "Edsger", "Barbara", "Donald", "Radia",
];
const ARTICLES: [(&str, u64); 6] = [
    ("teapot", 3490),
    ("lantern", 1295),
    ("rope, 10 m", 890),
    ("compass", 2750),
    ("map of the sound", 1400),
    ("ship's biscuit", 320),
];
const CARRIERS: [&str; 3] = ["ferry", "pigeon", "bicycle"];

/// Orders under way before the first is paid, so that several are told apart.
const FEWEST_OPEN: usize = 2;
/// Orders under way; some are finished before another is placed.
const MOST_OPEN: usize = 6;

/// The shop. Its customers do the same things each time.
pub(super) struct Shop {
    dice: Dice,
    next_order: u64,
    next_customer: u64,
    open: Vec<Order>,
}

struct Order {
    id: u64,
    cents: u64,
    paid: bool,
}

impl Shop {
    pub(super) fn new() -> Self {
        Self {
            dice: Dice(7),
            next_order: 1001,
            next_customer: 501,
            open: Vec::new(),
        }
    }

    /// The statements of the next transaction; each writes one row to the outbox.
    pub(super) fn step(&mut self) -> String {
        let dice = self.dice.roll(10);
        if self.open.len() >= MOST_OPEN || self.open.len() >= FEWEST_OPEN && dice < 6 {
            self.advance()
        } else if dice == 9 {
            self.register()
        } else {
            self.place()
        }
    }

    fn place(&mut self) -> String {
        let id = self.next_order;
        self.next_order += 1;
        let customer = *self.dice.pick(&CUSTOMERS);
        let (article, cents) = *self.dice.pick(&ARTICLES);
        self.open.push(Order { id, cents, paid: false });
        let total = euros(cents);
        transaction(
            &format!("INSERT INTO orders VALUES ({id}, '{customer}', {total:.2}, 'placed');"),
            ("order", id, "OrderPlaced"),
            &json!({"order": id, "customer": customer, "article": article, "total": total}),
        )
    }

    fn advance(&mut self) -> String {
        let place = self.dice.roll(self.open.len() as u64) as usize;
        let order = &mut self.open[place];
        let (id, total) = (order.id, euros(order.cents));
        let update = |status| format!("UPDATE orders SET status = '{status}' WHERE id = {id};");
        if order.paid {
            self.open.remove(place);
            let carrier = *self.dice.pick(&CARRIERS);
            let payload = json!({"order": id, "carrier": carrier});
            transaction(&update("shipped"), ("order", id, "OrderShipped"), &payload)
        } else {
            order.paid = true;
            let payload = json!({"order": id, "amount": total, "currency": "EUR"});
            transaction(&update("paid"), ("order", id, "OrderPaid"), &payload)
        }
    }

    fn register(&mut self) -> String {
        let id = self.next_customer;
        self.next_customer += 1;
        let name = *self.dice.pick(&CUSTOMERS);
        let payload = json!({"customer": id, "name": name});
        transaction("", ("customer", id, "CustomerRegistered"), &payload)
    }
}

/// A change and its event, both or neither.
fn transaction(change: &str, (aggregate, id, event): (&str, u64, &str), payload: &Value) -> String {
    let payload = payload.to_string().replace('\'', "''");
    let change = if change.is_empty() {
        String::new()
    } else {
        format!("{change}\n")
    };
    format!(
        "BEGIN;\n{change}INSERT INTO outbox (aggregatetype, aggregateid, type, payload)\n  \
         VALUES ('{aggregate}', '{id}', '{event}',\n  '{payload}');\nCOMMIT;"
    )
}

fn euros(cents: u64) -> f64 {
    cents as f64 / 100.0
}

/// Numbers that look like chance (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_a_transaction_with_one_event() {
        let mut shop = Shop::new();
        let steps: Vec<_> = (0..500).map(|_| shop.step()).collect();
        for step in &steps {
            assert!(step.starts_with("BEGIN;\n") && step.ends_with("COMMIT;"), "{step}");
            assert_eq!(step.matches("INSERT INTO outbox").count(), 1, "{step}");
            assert_eq!(
                step.matches('\'').count() % 2,
                0,
                "an apostrophe is not doubled: {step}"
            );
        }
        assert!(steps[0].contains("OrderPlaced"), "{}", steps[0]);
        for event in ["OrderPlaced", "OrderPaid", "OrderShipped", "CustomerRegistered"] {
            assert!(steps.iter().any(|step| step.contains(event)), "{event}");
        }
    }

    #[test]
    fn an_order_is_placed_then_paid_then_shipped() {
        let mut shop = Shop::new();
        let mut events = Vec::new();
        for _ in 0..200 {
            let step = shop.step();
            if step.contains("'1001'") {
                events.push(
                    ["OrderPlaced", "OrderPaid", "OrderShipped"]
                        .into_iter()
                        .find(|e| step.contains(e)),
                );
            }
        }
        assert_eq!(events, [Some("OrderPlaced"), Some("OrderPaid"), Some("OrderShipped")]);
    }
}
