package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct{}

type franzProducer struct{ *kgo.Client }

var franzCodecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var franzAcks = map[int16]kgo.Acks{
	-1: kgo.AllISRAcks(),
	0:  kgo.NoAck(),
	1:  kgo.LeaderAck(),
}

func franzClient(a asked, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(
		options,
		kgo.SeedBrokers(strings.Split(a.Servers, ",")...),
		kgo.MetadataMinAge(100*time.Millisecond), // a fresh topic has no leader yet
	)...)
}

func (franz) create(a asked) error {
	c, err := franzClient(a)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	_, err = kadm.NewClient(c).CreateTopic(ctx, a.Partitions, 1, a.Configs, a.Topic)
	return err
}

func (franz) open(a asked) (producer, error) {
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(franzCodecs[a.Codec]),
		kgo.RequiredAcks(franzAcks[a.Acks]),
		kgo.ProducerBatchMaxBytes(maxBatchBytes),
		kgo.ProducerLinger(lingerFor),
	}
	if a.Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if !a.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	c, err := franzClient(a, options...)
	return franzProducer{c}, err
}

func (p franzProducer) close() { p.Close() }

func (p franzProducer) send(a asked) ([]place, error) {
	// Not kgo.RecordDeliveryTimeout: it counts from a record's own timestamp.
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	results := p.ProduceSync(ctx, franzRecords(a)...)
	places := make([]place, 0, len(results))
	for _, each := range results {
		places = append(places, place{int64(each.Record.Partition), each.Record.Offset})
	}
	return places, results.FirstErr()
}

func franzRecords(a asked) []*kgo.Record {
	records := make([]*kgo.Record, 0, len(a.Records))
	for _, each := range a.Records {
		made := &kgo.Record{
			Topic:     a.Topic,
			Key:       each.Key,
			Value:     each.Value,
			Timestamp: time.UnixMilli(each.Timestamp),
		}
		if a.Partition != nil {
			made.Partition = *a.Partition
		}
		for _, h := range each.Headers {
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		records = append(records, made)
	}
	return records
}

func (franz) consume(a asked) ([]record, error) {
	from := map[int32]kgo.Offset{*a.Partition: kgo.NewOffset().At(a.Start)}
	return franzRead(a, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.Topic: from}))
}

func (franz) group(a asked) ([]record, error) {
	return franzRead(
		a,
		kgo.ConsumerGroup(a.Group),
		kgo.ConsumeTopics(a.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
}

func franzRead(a asked, options ...kgo.Opt) ([]record, error) {
	c, err := franzClient(a, append(options, kgo.FetchMaxWait(200*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	found := []record{}
	for len(found) < a.Count && ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		for _, each := range fetches.Errors() {
			if !errors.Is(each.Err, context.DeadlineExceeded) {
				return nil, each.Err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) { found = append(found, franzSeen(r)) })
	}
	if a.Group == "" {
		return found, nil
	}
	return found, c.CommitUncommittedOffsets(ctx)
}

func franzSeen(r *kgo.Record) record {
	headers := []header{}
	for _, h := range r.Headers {
		headers = append(headers, header{h.Key, h.Value})
	}
	return record{r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value, headers}
}

func (franz) code(err error) (int16, bool) {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Code, true
	}
	return 0, false
}
