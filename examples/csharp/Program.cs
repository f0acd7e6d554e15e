// Places orders, and ships them. Reviewed, but never compiled or run.

using System.Text;
using System.Text.Json;
using Confluent.Kafka;
using Npgsql;

const string Consumer = "shipping";
const string Topic = "outbox.event.order";

switch (args.FirstOrDefault())
{
    case "place":
        PlaceOrders(args.Length > 1 ? int.Parse(args[1]) : 10);
        return 0;
    case "ship":
        ShipOrders();
        return 0;
    default:
        Console.Error.WriteLine("write: place COUNT, or: ship");
        return 2;
}

static void PlaceOrders(int count)
{
    using var connection = Connect();
    for (var number = 0; number < count; number++)
    {
        var order = PlaceOrder(connection, $"customer-{number % 7}", 100 + number);
        Console.WriteLine($"placed order {order}");
    }
}

static long PlaceOrder(NpgsqlConnection connection, string customer, long totalCents)
{
    // Both rows are committed together, or neither is. Without a commit, Dispose rolls back.
    using var transaction = connection.BeginTransaction();
    using var insertOrder = new NpgsqlCommand(
        "INSERT INTO orders (customer, total_cents) VALUES ($1, $2) RETURNING id", connection, transaction)
    {
        Parameters = { new() { Value = customer }, new() { Value = totalCents } },
    };
    var order = (long)insertOrder.ExecuteScalar()!;
    var payload = JsonSerializer.Serialize(new { order_id = order, customer, total_cents = totalCents });
    using var insertEvent = new NpgsqlCommand(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', $1, 'OrderPlaced', $2::jsonb)",
        connection,
        transaction)
    {
        Parameters = { new() { Value = order.ToString() }, new() { Value = payload } },
    };
    insertEvent.ExecuteNonQuery();
    transaction.Commit();
    return order;
}

static void ShipOrders()
{
    using var stop = new CancellationTokenSource();
    Console.CancelKeyPress += (_, pressed) =>
    {
        pressed.Cancel = true;
        stop.Cancel();
    };
    using var connection = Connect();
    using var consumer = new ConsumerBuilder<string, string>(new ConsumerConfig
    {
        BootstrapServers = Environment.GetEnvironmentVariable("KAFKA_BOOTSTRAP"),
        GroupId = Consumer,
        AutoOffsetReset = AutoOffsetReset.Earliest,
        // The offset is committed below, after the database.
        EnableAutoCommit = false,
    }).Build();
    consumer.Subscribe(Topic);
    try
    {
        while (true)
        {
            var record = consumer.Consume(stop.Token);
            Process(connection, record.Message);
            // A crash before this line brings the event again. The inbox recognises it.
            consumer.Commit(record);
        }
    }
    catch (OperationCanceledException)
    {
        consumer.Close();
    }
}

static void Process(NpgsqlConnection connection, Message<string, string> message)
{
    var eventId = Header(message, "id");
    // The id and the work are committed together, or neither is.
    using var transaction = connection.BeginTransaction();
    using var note = new NpgsqlCommand(
        "INSERT INTO inbox (message_id, consumer) VALUES ($1, $2) ON CONFLICT DO NOTHING", connection, transaction)
    {
        Parameters = { new() { Value = Guid.Parse(eventId) }, new() { Value = Consumer } },
    };
    if (note.ExecuteNonQuery() == 0)
    {
        Console.WriteLine($"seen before: {eventId}");
    }
    else if (Header(message, "eventType") == "OrderPlaced")
    {
        Ship(connection, transaction, message.Value);
    }
    transaction.Commit();
}

static void Ship(NpgsqlConnection connection, NpgsqlTransaction transaction, string payload)
{
    using var placed = JsonDocument.Parse(payload);
    var order = placed.RootElement.GetProperty("order_id").GetInt64();
    using var insert = new NpgsqlCommand(
        "INSERT INTO shipments (order_id, customer) VALUES ($1, $2)", connection, transaction)
    {
        Parameters =
        {
            new() { Value = order },
            new() { Value = placed.RootElement.GetProperty("customer").GetString()! },
        },
    };
    insert.ExecuteNonQuery();
    Console.WriteLine($"shipped order {order}");
}

static string Header(Message<string, string> message, string name) =>
    Encoding.UTF8.GetString(message.Headers.GetLastBytes(name));

// DATABASE_URL is postgres://USER:PASSWORD@HOST:PORT/DATABASE.
static NpgsqlConnection Connect()
{
    var url = new Uri(Environment.GetEnvironmentVariable("DATABASE_URL")!);
    var login = url.UserInfo.Split(':', 2);
    var connection = new NpgsqlConnection(new NpgsqlConnectionStringBuilder
    {
        Host = url.Host,
        Port = url.Port > 0 ? url.Port : 5432,
        Database = url.AbsolutePath.TrimStart('/'),
        Username = Uri.UnescapeDataString(login[0]),
        Password = login.Length > 1 ? Uri.UnescapeDataString(login[1]) : null,
    }.ConnectionString);
    connection.Open();
    return connection;
}
