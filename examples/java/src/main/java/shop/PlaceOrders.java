package shop;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/** Places orders. Each order and its event are written in one transaction. */
public final class PlaceOrders {
    private PlaceOrders() {}

    public static void main(String[] args) throws SQLException {
        int count = args.length > 0 ? Integer.parseInt(args[0]) : 10;
        try (Connection connection = Shop.connect()) {
            for (int number = 0; number < count; number++) {
                long order = placeOrder(connection, "customer-" + number % 7, 100 + number);
                System.out.println("placed order " + order);
            }
        }
    }

    static long placeOrder(Connection connection, String customer, long totalCents) throws SQLException {
        // Both rows are committed together, or neither is.
        try {
            long order = insertOrder(connection, customer, totalCents);
            insertEvent(connection, order, customer, totalCents);
            connection.commit();
            return order;
        } catch (SQLException error) {
            connection.rollback();
            throw error;
        }
    }

    private static long insertOrder(Connection connection, String customer, long totalCents) throws SQLException {
        String sql = "INSERT INTO orders (customer, total_cents) VALUES (?, ?) RETURNING id";
        try (PreparedStatement insert = connection.prepareStatement(sql)) {
            insert.setString(1, customer);
            insert.setLong(2, totalCents);
            try (ResultSet row = insert.executeQuery()) {
                row.next();
                return row.getLong(1);
            }
        }
    }

    private static void insertEvent(Connection connection, long order, String customer, long totalCents)
            throws SQLException {
        // The database makes the JSON, so that the example needs no library for it.
        String sql =
                "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', ?, 'OrderPlaced', "
                        + "jsonb_build_object('order_id', ?::bigint, 'customer', ?::text, 'total_cents', ?::bigint))";
        try (PreparedStatement insert = connection.prepareStatement(sql)) {
            insert.setString(1, Long.toString(order));
            insert.setLong(2, order);
            insert.setString(3, customer);
            insert.setLong(4, totalCents);
            insert.executeUpdate();
        }
    }
}
