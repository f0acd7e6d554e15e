// Ships orders. Each event is processed once, also if it comes twice.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	consumer = "shipping"
	topic    = "outbox.event.order"
)

type orderPlaced struct {
	OrderID  int64  `json:"order_id"`
	Customer string `json:"customer"`
}

func header(record *kgo.Record, name string) string {
	for _, header := range record.Headers {
		if header.Key == name {
			return string(header.Value)
		}
	}
	return ""
}

func process(ctx context.Context, conn *pgx.Conn, record *kgo.Record) error {
	eventID := header(record, "id")
	// The id and the work are committed together, or neither is.
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		noted, err := tx.Exec(ctx,
			"INSERT INTO inbox (message_id, consumer) VALUES ($1, $2) ON CONFLICT DO NOTHING", eventID, consumer)
		if err != nil {
			return err
		}
		if noted.RowsAffected() == 0 {
			fmt.Println("seen before:", eventID)
			return nil
		}
		if header(record, "eventType") != "OrderPlaced" {
			return nil
		}
		var event orderPlaced
		if err := json.Unmarshal(record.Value, &event); err != nil {
			return err
		}
		return ship(ctx, tx, event)
	})
}

func ship(ctx context.Context, tx pgx.Tx, event orderPlaced) error {
	_, err := tx.Exec(ctx, "INSERT INTO shipments (order_id, customer) VALUES ($1, $2)", event.OrderID, event.Customer)
	if err == nil {
		fmt.Println("shipped order", event.OrderID)
	}
	return err
}

func run(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BOOTSTRAP"), ",")...),
		kgo.ConsumerGroup(consumer),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// The offset is committed below, after the database.
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, failed := range fetches.Errors() {
			return failed.Err
		}
		for _, record := range fetches.Records() {
			if err := process(ctx, conn, record); err != nil {
				return err
			}
			// A crash before this line brings the event again. The inbox recognises it.
			if err := client.CommitRecords(ctx, record); err != nil {
				return err
			}
		}
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}
