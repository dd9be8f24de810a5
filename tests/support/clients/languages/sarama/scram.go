package main

import (
	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// login is SCRAM-SHA-256 in the form that the library takes; it brings none of its own.
type login struct{ *scram.ClientConversation }

func newScram() sarama.SCRAMClient { return &login{} }

func (l *login) Begin(user, password, authorization string) error {
	client, err := scram.SHA256.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	l.ClientConversation = client.NewConversation()
	return nil
}
