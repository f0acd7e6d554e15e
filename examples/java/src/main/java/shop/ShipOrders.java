package shop;

import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Ships orders. Each event is processed once, also if it comes twice. */
public final class ShipOrders {
    private static final String CONSUMER = "shipping";
    private static final String TOPIC = "outbox.event.order";

    private ShipOrders() {}

    public static void main(String[] args) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP"));
        properties.setProperty("group.id", CONSUMER);
        properties.setProperty("auto.offset.reset", "earliest");
        // The offset is committed below, after the database.
        properties.setProperty("enable.auto.commit", "false");
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        try (consumer; Connection connection = Shop.connect()) {
            consumer.subscribe(List.of(TOPIC));
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    process(connection, record);
                    // A crash before this line brings the event again. The inbox recognises it.
                    consumer.commitSync(Map.of(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1)));
                }
            }
        } catch (WakeupException stopped) {
            // By the hook above.
        }
    }

    static void process(Connection connection, ConsumerRecord<String, String> record) throws SQLException {
        String event = header(record, "id");
        // The id and the work are committed together, or neither is.
        try {
            if (!note(connection, event)) {
                System.out.println("seen before: " + event);
            } else if (header(record, "eventType").equals("OrderPlaced")) {
                ship(connection, record);
            }
            connection.commit();
        } catch (SQLException error) {
            connection.rollback();
            throw error;
        }
    }

    /** Returns whether the event is new. */
    private static boolean note(Connection connection, String event) throws SQLException {
        String sql = "INSERT INTO inbox (message_id, consumer) VALUES (?, ?) ON CONFLICT DO NOTHING";
        try (PreparedStatement insert = connection.prepareStatement(sql)) {
            insert.setObject(1, UUID.fromString(event));
            insert.setString(2, CONSUMER);
            return insert.executeUpdate() == 1;
        }
    }

    private static void ship(Connection connection, ConsumerRecord<String, String> record) throws SQLException {
        // The database reads the JSON, so that the example needs no library for it.
        String sql = "INSERT INTO shipments (order_id, customer) "
                + "SELECT (event ->> 'order_id')::bigint, event ->> 'customer' FROM (SELECT ?::jsonb AS event) AS placed";
        try (PreparedStatement insert = connection.prepareStatement(sql)) {
            insert.setString(1, record.value());
            insert.executeUpdate();
        }
        System.out.println("shipped order " + record.key());
    }

    private static String header(ConsumerRecord<?, ?> record, String name) {
        return new String(record.headers().lastHeader(name).value(), StandardCharsets.UTF_8);
    }
}
