// Sarama, spoken to in lines of JSON as tests/support/clients/spoken.py says.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func config(ask *request) (*sarama.Config, error) {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Compression = codecs[ask.Codec]
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.Group.Rebalance.Timeout = 6 * time.Second
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	if ask.Acks != nil {
		c.Producer.RequiredAcks = sarama.RequiredAcks(int16(*ask.Acks))
	}
	if ask.Idempotent || ask.Verb == "transact" {
		c.Producer.Idempotent = true
		c.Net.MaxOpenRequests = 1
	}
	if ask.Verb == "transact" {
		c.Producer.Transaction.ID = ask.Id
	}
	if ask.CommittedOnly {
		c.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	if ask.Place != nil {
		c.Consumer.Group.InstanceId = *ask.Place
	}
	if ask.Authority != "" {
		pem, err := os.ReadFile(ask.Authority)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		c.Net.TLS.Enable = true
		c.Net.TLS.Config = &tls.Config{RootCAs: pool}
		c.Net.SASL.Enable = true
		c.Net.SASL.User, c.Net.SASL.Password = ask.User, ask.Password
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA256
		c.Net.SASL.SCRAMClientGeneratorFunc = newScram
	}
	return c, nil
}

func messages(ask *request) []*sarama.ProducerMessage {
	var rows []*sarama.ProducerMessage
	for _, row := range ask.Records {
		one := &sarama.ProducerMessage{Topic: ask.Topic, Partition: row.Partition, Value: sarama.StringEncoder(row.Value)}
		if row.Key != nil {
			one.Key = sarama.StringEncoder(*row.Key)
		}
		for _, header := range row.Headers {
			one.Headers = append(one.Headers, sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])})
		}
		if row.Timestamp != 0 {
			one.Timestamp = time.UnixMilli(row.Timestamp)
		}
		rows = append(rows, one)
	}
	return rows
}

func produce(ask *request) (any, error) {
	c, err := config(ask)
	if err != nil {
		return nil, err
	}
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, c)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if ask.Verb != "transact" {
		return nil, producer.SendMessages(messages(ask))
	}
	if err := producer.BeginTxn(); err != nil {
		return nil, err
	}
	if err := producer.SendMessages(messages(ask)); err != nil {
		return nil, err
	}
	if ask.Offsets != nil {
		at := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: ask.Offsets.Offset}}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{ask.Offsets.Topic: at}
		if err := producer.AddOffsetsToTxn(offsets, ask.Offsets.Group); err != nil {
			return nil, err
		}
	}
	if ask.Commit {
		return nil, producer.CommitTxn()
	}
	return nil, producer.AbortTxn()
}

func read(ask *request) (any, error) {
	c, err := config(ask)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumer([]string{bootstrap}, c)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(ask.Topic, ask.Partition, ask.Offset)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	late := time.After(timeout)
	told := []record{}
	for len(told) < ask.Count {
		select {
		case row := <-partition.Messages():
			one := record{Offset: &row.Offset, Partition: row.Partition, Value: string(row.Value),
				Headers: [][2]string{}, Timestamp: row.Timestamp.UnixMilli()}
			if row.Key != nil {
				key := string(row.Key)
				one.Key = &key
			}
			for _, header := range row.Headers {
				one.Headers = append(one.Headers, [2]string{string(header.Key), string(header.Value)})
			}
			told = append(told, one)
		case <-late:
			return nil, fmt.Errorf("%d of %d records came", len(told), ask.Count)
		}
	}
	return told, nil
}

func administer(ask *request) (any, error) {
	c, err := config(ask)
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient([]string{bootstrap}, c)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: ask.Topic}
	switch ask.Verb {
	case "create":
		entries := map[string]*string{}
		for name, value := range ask.Configs {
			entries[name] = &value
		}
		detail := &sarama.TopicDetail{NumPartitions: ask.Partitions, ReplicationFactor: 1, ConfigEntries: entries}
		return nil, admin.CreateTopic(ask.Topic, detail, false)
	case "grow":
		return nil, admin.CreatePartitions(ask.Topic, ask.Partitions, nil, false)
	case "delete":
		return nil, admin.DeleteTopic(ask.Topic)
	case "topics":
		topics, err := admin.ListTopics()
		counts := map[string]int32{}
		for name, detail := range topics {
			counts[name] = detail.NumPartitions
		}
		return counts, err
	case "ends":
		start, err := client.GetOffset(ask.Topic, ask.Partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		end, err := client.GetOffset(ask.Topic, ask.Partition, sarama.OffsetNewest)
		return []int64{start, end}, err
	case "offset_at":
		return client.GetOffset(ask.Topic, ask.Partition, ask.Timestamp)
	case "config":
		resource.ConfigNames = []string{ask.Name}
		entries, err := admin.DescribeConfig(resource)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			return nil, errors.New("no such config")
		}
		return entries[0].Value, nil
	case "set_config":
		entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &ask.Value}
		changes := map[string]sarama.IncrementalAlterConfigsEntry{ask.Name: entry}
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, ask.Topic, changes, false)
	case "committed":
		offsets, err := admin.ListConsumerGroupOffsets(ask.Group, map[string][]int32{ask.Topic: {0}})
		if err != nil {
			return nil, err
		}
		block := offsets.GetBlock(ask.Topic, 0)
		if block == nil || block.Offset < 0 {
			return nil, nil
		}
		return block.Offset, nil
	}
	return nil, fmt.Errorf("no verb %q", ask.Verb)
}

func answer(ask *request) (any, error) {
	switch ask.Verb {
	case "produce", "transact":
		return produce(ask)
	case "read":
		return read(ask)
	case "join":
		return nil, member.join(ask)
	case "poll":
		return member.poll(), nil
	case "owned":
		return member.owned(), nil
	case "commit":
		return nil, member.commit()
	case "leave":
		return nil, member.leave()
	}
	return administer(ask)
}
