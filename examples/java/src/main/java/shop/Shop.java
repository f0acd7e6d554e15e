package shop;

import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Properties;

/** Where the database is. */
final class Shop {
    private Shop() {}

    /** Connects to what DATABASE_URL names, as postgres://USER:PASSWORD@HOST:PORT/DATABASE. Nothing is committed on its own. */
    static Connection connect() throws SQLException {
        URI url = URI.create(System.getenv("DATABASE_URL"));
        Properties login = new Properties();
        String[] user = url.getUserInfo().split(":", 2);
        login.setProperty("user", user[0]);
        if (user.length > 1) {
            login.setProperty("password", user[1]);
        }
        int port = url.getPort() < 0 ? 5432 : url.getPort();
        Connection connection =
                DriverManager.getConnection("jdbc:postgresql://" + url.getHost() + ":" + port + url.getPath(), login);
        connection.setAutoCommit(false);
        return connection;
    }
}
