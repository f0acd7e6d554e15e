// Places orders. Each order and its event are written in one transaction.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
)

type orderPlaced struct {
	OrderID    int64  `json:"order_id"`
	Customer   string `json:"customer"`
	TotalCents int64  `json:"total_cents"`
}

func placeOrder(ctx context.Context, conn *pgx.Conn, customer string, totalCents int64) (int64, error) {
	event := orderPlaced{Customer: customer, TotalCents: totalCents}
	// Both rows are committed together, or neither is.
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		insert := "INSERT INTO orders (customer, total_cents) VALUES ($1, $2) RETURNING id"
		if err := tx.QueryRow(ctx, insert, customer, totalCents).Scan(&event.OrderID); err != nil {
			return err
		}
		payload, err := json.Marshal(event)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx,
			"INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', $1, 'OrderPlaced', $2)",
			strconv.FormatInt(event.OrderID, 10), payload)
		return err
	})
	return event.OrderID, err
}

func main() {
	count := 10
	if len(os.Args) > 1 {
		var err error
		if count, err = strconv.Atoi(os.Args[1]); err != nil {
			log.Fatal(err)
		}
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	for number := range count {
		orderID, err := placeOrder(ctx, conn, fmt.Sprintf("customer-%d", number%7), int64(100+number))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("placed order", orderID)
	}
}
