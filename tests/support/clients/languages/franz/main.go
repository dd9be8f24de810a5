// franz-go, spoken to in lines of JSON as tests/support/clients/spoken.py says.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	member    *kgo.Client
	ownedLock sync.Mutex
	owned     = map[int32]bool{}
)

var codecs = map[string]kgo.CompressionCodec{
	"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func options(ask *request, more ...kgo.Opt) ([]kgo.Opt, error) {
	opts := append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, more...)
	if ask.Authority == "" {
		return opts, nil
	}
	pem, err := os.ReadFile(ask.Authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	login := scram.Auth{User: ask.User, Pass: ask.Password}
	return append(opts, kgo.DialTLSConfig(&tls.Config{RootCAs: pool}), kgo.SASL(login.AsSha256Mechanism())), nil
}

func client(ask *request, more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := options(ask, more...)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(opts...)
}

func records(ask *request) []*kgo.Record {
	var rows []*kgo.Record
	for _, row := range ask.Records {
		one := &kgo.Record{Topic: ask.Topic, Partition: row.Partition, Value: []byte(row.Value)}
		if row.Key != nil {
			one.Key = []byte(*row.Key)
		}
		for _, header := range row.Headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
		}
		if row.Timestamp != 0 {
			one.Timestamp = time.UnixMilli(row.Timestamp)
		}
		rows = append(rows, one)
	}
	return rows
}

func text(rows []*kgo.Record) []record {
	told := []record{}
	for _, row := range rows {
		one := record{Offset: &row.Offset, Partition: row.Partition, Value: string(row.Value),
			Headers: [][2]string{}, Timestamp: row.Timestamp.UnixMilli()}
		if row.Key != nil {
			key := string(row.Key)
			one.Key = &key
		}
		for _, header := range row.Headers {
			one.Headers = append(one.Headers, [2]string{header.Key, string(header.Value)})
		}
		told = append(told, one)
	}
	return told
}

func produce(ctx context.Context, ask *request) (any, error) {
	opts := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[ask.Codec])}
	if !ask.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
		acks := kgo.AllISRAcks()
		if ask.Acks != nil && *ask.Acks == 0 {
			acks = kgo.NoAck()
		} else if ask.Acks != nil && *ask.Acks == 1 {
			acks = kgo.LeaderAck()
		}
		opts = append(opts, kgo.RequiredAcks(acks))
	}
	cl, err := client(ask, opts...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return nil, cl.ProduceSync(ctx, records(ask)...).FirstErr()
}

func transact(ctx context.Context, ask *request) (any, error) {
	cl, err := client(ask, kgo.TransactionalID(ask.Id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := cl.ProduceSync(ctx, records(ask)...).FirstErr(); err != nil {
		return nil, err
	}
	if ask.Offsets != nil {
		id, epoch, err := cl.ProducerID(ctx)
		if err != nil {
			return nil, err
		}
		if err := offsetsInTransaction(ctx, cl, ask, id, epoch); err != nil {
			return nil, err
		}
	}
	return nil, cl.EndTransaction(ctx, kgo.TransactionEndTry(ask.Commit))
}

func read(ctx context.Context, ask *request) (any, error) {
	where := map[string]map[int32]kgo.Offset{ask.Topic: {ask.Partition: kgo.NewOffset().At(ask.Offset)}}
	cl, err := client(ask, kgo.ConsumePartitions(where))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var rows []*kgo.Record
	for len(rows) < ask.Count {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		rows = append(rows, fetches.Records()...)
	}
	return text(rows), nil
}

func join(ask *request) (any, error) {
	took := func(_ context.Context, _ *kgo.Client, lots map[string][]int32) {
		ownedLock.Lock()
		defer ownedLock.Unlock()
		for _, lot := range lots {
			for _, one := range lot {
				owned[one] = true
			}
		}
	}
	gave := func(_ context.Context, _ *kgo.Client, lots map[string][]int32) {
		ownedLock.Lock()
		defer ownedLock.Unlock()
		for _, lot := range lots {
			for _, one := range lot {
				delete(owned, one)
			}
		}
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(ask.Group), kgo.ConsumeTopics(ask.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(took), kgo.OnPartitionsRevoked(gave), kgo.OnPartitionsLost(gave),
	}
	if ask.Place != nil {
		opts = append(opts, kgo.InstanceID(*ask.Place))
	}
	if ask.CommittedOnly {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	var err error
	member, err = client(ask, opts...)
	return nil, err
}

func poll() (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	values := []string{}
	fetches := member.PollFetches(ctx)
	if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	for _, row := range fetches.Records() {
		values = append(values, string(row.Value))
	}
	return values, nil
}

func administer(ctx context.Context, ask *request) (any, error) {
	cl, err := client(ask)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	switch ask.Verb {
	case "create":
		configs := map[string]*string{}
		for name, value := range ask.Configs {
			configs[name] = &value
		}
		_, err := admin.CreateTopic(ctx, ask.Partitions, 1, configs, ask.Topic)
		return nil, err
	case "grow":
		answers, err := admin.UpdatePartitions(ctx, int(ask.Partitions), ask.Topic)
		if err == nil {
			err = answers.Error()
		}
		return nil, err
	case "delete":
		_, err := admin.DeleteTopic(ctx, ask.Topic)
		return nil, err
	case "topics":
		details, err := admin.ListTopics(ctx)
		counts := map[string]int{}
		for name, detail := range details {
			counts[name] = len(detail.Partitions)
		}
		return counts, err
	case "ends":
		starts, err := admin.ListStartOffsets(ctx, ask.Topic)
		if err != nil {
			return nil, err
		}
		ends, err := admin.ListEndOffsets(ctx, ask.Topic)
		if err != nil {
			return nil, err
		}
		start, _ := starts.Lookup(ask.Topic, ask.Partition)
		end, _ := ends.Lookup(ask.Topic, ask.Partition)
		return []int64{start.Offset, end.Offset}, nil
	case "offset_at":
		found, err := admin.ListOffsetsAfterMilli(ctx, ask.Timestamp, ask.Topic)
		if err != nil {
			return nil, err
		}
		one, _ := found.Lookup(ask.Topic, ask.Partition)
		return one.Offset, one.Err
	case "config":
		configs, err := admin.DescribeTopicConfigs(ctx, ask.Topic)
		if err != nil {
			return nil, err
		}
		for _, config := range configs[0].Configs {
			if config.Key == ask.Name {
				return config.MaybeValue(), configs[0].Err
			}
		}
		return nil, errors.New("no such config")
	case "set_config":
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: ask.Name, Value: &ask.Value}}
		answers, err := admin.AlterTopicConfigs(ctx, change, ask.Topic)
		if err == nil {
			err = answers[0].Err
		}
		return nil, err
	case "committed":
		offsets, err := admin.FetchOffsets(ctx, ask.Group)
		if err != nil {
			return nil, err
		}
		one, ok := offsets.Lookup(ask.Topic, 0)
		if !ok {
			return nil, nil
		}
		return one.At, one.Err
	}
	return nil, fmt.Errorf("no verb %q", ask.Verb)
}

func answer(ask *request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	switch ask.Verb {
	case "produce":
		return produce(ctx, ask)
	case "transact":
		return transact(ctx, ask)
	case "read":
		return read(ctx, ask)
	case "join":
		return join(ask)
	case "poll":
		return poll()
	case "owned":
		ownedLock.Lock()
		defer ownedLock.Unlock()
		list := []int32{}
		for one := range owned {
			list = append(list, one)
		}
		return list, nil
	case "commit":
		return nil, member.CommitUncommittedOffsets(ctx)
	case "leave":
		member.Close()
		return nil, nil
	}
	return administer(ctx, ask)
}
