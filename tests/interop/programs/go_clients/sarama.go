package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct{}

type saramaProducer struct{ sarama.SyncProducer }

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.MaxMessageBytes = maxBatchBytes
	config.Producer.Flush.Frequency = lingerFor
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = session
	config.Admin.Timeout = deadline
	return config
}

func (saramaClient) create(a asked) error {
	admin, err := sarama.NewClusterAdmin(strings.Split(a.Servers, ","), saramaConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{
		NumPartitions: a.Partitions, ReplicationFactor: 1, ConfigEntries: a.Configs,
	}
	return admin.CreateTopic(a.Topic, detail, false)
}

func (saramaClient) open(a asked) (producer, error) {
	config := saramaConfig()
	config.Producer.Compression = saramaCodecs[a.Codec]
	config.Producer.RequiredAcks = sarama.RequiredAcks(a.Acks)
	if a.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	if a.Partition != nil {
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	p, err := sarama.NewSyncProducer(strings.Split(a.Servers, ","), config)
	return saramaProducer{p}, err
}

func (p saramaProducer) close() { p.Close() }

func (p saramaProducer) send(a asked) ([]place, error) {
	messages := saramaMessages(a)
	err := p.SendMessages(messages)
	places := make([]place, 0, len(messages))
	for _, each := range messages {
		places = append(places, place{int64(each.Partition), each.Offset})
	}
	return places, err
}

func saramaMessages(a asked) []*sarama.ProducerMessage {
	messages := make([]*sarama.ProducerMessage, 0, len(a.Records))
	for _, each := range a.Records {
		made := &sarama.ProducerMessage{Topic: a.Topic, Timestamp: time.UnixMilli(each.Timestamp)}
		// An Encoder that holds nil would be a record with an empty key, not one without.
		if each.Key != nil {
			made.Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			made.Value = sarama.ByteEncoder(each.Value)
		}
		if a.Partition != nil {
			made.Partition = *a.Partition
		}
		for _, h := range each.Headers {
			made.Headers = append(
				made.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value},
			)
		}
		messages = append(messages, made)
	}
	return messages
}

func (saramaClient) consume(a asked) ([]record, error) {
	consumer, err := sarama.NewConsumer(strings.Split(a.Servers, ","), saramaConfig())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	from, err := consumer.ConsumePartition(a.Topic, *a.Partition, a.Start)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	found := []record{}
	late := time.After(deadline)
	for len(found) < a.Count {
		select {
		case message := <-from.Messages():
			found = append(found, saramaSeen(message))
		case err := <-from.Errors():
			return nil, err.Err
		case <-late:
			return found, nil
		}
	}
	return found, nil
}

func (saramaClient) group(a asked) ([]record, error) {
	config := saramaConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(strings.Split(a.Servers, ","), a.Group, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	member := &saramaMember{count: a.Count, enough: cancel, found: []record{}}
	for ctx.Err() == nil { // a rebalance ends a session, and the next one goes on
		if err := group.Consume(ctx, []string{a.Topic}, member); err != nil {
			return nil, err
		}
	}
	return member.found, nil
}

// Claims are consumed side by side, one goroutine for each partition.
type saramaMember struct {
	lock   sync.Mutex
	count  int
	enough func()
	found  []record
}

func (*saramaMember) Setup(sarama.ConsumerGroupSession) error { return nil }

func (*saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *saramaMember) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for message := range claim.Messages() {
		m.lock.Lock()
		m.found = append(m.found, saramaSeen(message))
		session.MarkMessage(message, "")
		if len(m.found) >= m.count {
			m.enough()
		}
		m.lock.Unlock()
	}
	return nil
}

func saramaSeen(m *sarama.ConsumerMessage) record {
	headers := []header{}
	for _, h := range m.Headers {
		headers = append(headers, header{string(h.Key), h.Value})
	}
	return record{m.Partition, m.Offset, m.Timestamp.UnixMilli(), m.Key, m.Value, headers}
}

func (saramaClient) code(err error) (int16, bool) {
	var many sarama.ProducerErrors
	if errors.As(err, &many) {
		err = many[0].Err
	}
	var known sarama.KError
	if errors.As(err, &known) {
		return int16(known), true
	}
	return 0, false
}
