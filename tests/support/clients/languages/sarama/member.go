package main

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// group is one member; the library calls it back for what it owns and reads.
type group struct {
	sync.Mutex
	session sarama.ConsumerGroupSession
	ours    map[int32]bool
	values  []string
	passed  []*sarama.ConsumerMessage
	library sarama.ConsumerGroup
	stop    context.CancelFunc
	ended   chan struct{}
}

var member = &group{ours: map[int32]bool{}}

func (g *group) Setup(session sarama.ConsumerGroupSession) error {
	g.Lock()
	defer g.Unlock()
	g.session = session
	g.ours = map[int32]bool{}
	for _, lot := range session.Claims() {
		for _, one := range lot {
			g.ours[one] = true
		}
	}
	return nil
}

func (g *group) Cleanup(sarama.ConsumerGroupSession) error {
	g.Lock()
	defer g.Unlock()
	g.session, g.ours, g.passed = nil, map[int32]bool{}, nil
	return nil
}

func (g *group) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			g.Lock()
			g.values = append(g.values, string(message.Value))
			g.passed = append(g.passed, message)
			g.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func (g *group) join(ask *request) error {
	c, err := config(ask)
	if err != nil {
		return err
	}
	g.library, err = sarama.NewConsumerGroup([]string{bootstrap}, ask.Group, c)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	g.stop, g.ended = stop, make(chan struct{})
	go func() {
		defer close(g.ended)
		for ctx.Err() == nil {
			if err := g.library.Consume(ctx, []string{ask.Topic}, g); err != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return nil
}

func (g *group) poll() []string {
	time.Sleep(50 * time.Millisecond)
	g.Lock()
	defer g.Unlock()
	came := append([]string{}, g.values...)
	g.values = nil
	return came
}

func (g *group) owned() []int32 {
	g.Lock()
	defer g.Unlock()
	list := []int32{}
	for one := range g.ours {
		list = append(list, one)
	}
	return list
}

func (g *group) commit() error {
	g.Lock()
	defer g.Unlock()
	if g.session == nil {
		return nil
	}
	for _, message := range g.passed {
		g.session.MarkMessage(message, "")
	}
	g.session.Commit()
	return nil
}

func (g *group) leave() error {
	g.stop()
	<-g.ended
	return g.library.Close()
}
