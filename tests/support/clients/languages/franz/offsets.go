package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetsInTransaction commits one offset of another group within the open transaction.
//
// The library does so by itself only for its own group (GroupTransactSession); these are the
// requests that it sends then.
func offsetsInTransaction(ctx context.Context, cl *kgo.Client, ask *request, id int64, epoch int16) error {
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = ask.Id, id, epoch, ask.Offsets.Group
	added, err := add.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return err
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group = ask.Id, id, epoch, ask.Offsets.Group
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = ask.Offsets.Topic
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = ask.Offsets.Offset
	topic.Partitions = append(topic.Partitions, partition)
	commit.Topics = append(commit.Topics, topic)
	answer, err := commit.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
}
