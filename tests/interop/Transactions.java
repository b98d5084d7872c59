// Transactional producers of Apache Kafka's Java client behind JSON lines, as transaction_clients.py
// asks for them. `java` runs this file as it is; Jackson comes with Kafka's jars.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int DEADLINE_SECONDS = 60;
    static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();
    static final Map<String, KafkaConsumer<String, String>> CONSUMERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    static ObjectNode answer(JsonNode asked) throws Exception {
        try {
            return act(asked);
        } catch (ExecutionException refused) {
            return refusal(refused.getCause());
        } catch (KafkaException refused) {
            return refusal(refused);
        }
    }

    static ObjectNode act(JsonNode asked) throws Exception {
        ObjectNode done = JSON.createObjectNode();
        String name = asked.get("producer").asText();
        KafkaProducer<String, String> producer = PRODUCERS.get(name);
        switch (asked.get("do").asText()) {
            case "open" -> open(name, asked);
            case "begin" -> producer.beginTransaction();
            case "send" -> send(producer, asked, done.putArray("offsets"));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> PRODUCERS.remove(name).close(Duration.ofSeconds(DEADLINE_SECONDS));
            case "drop" -> PRODUCERS.remove(name).close(Duration.ZERO);
            case "assign" -> assign(name, asked);
            case "poll" -> poll(CONSUMERS.get(name), done.putArray("records"));
            case "copy" -> copy(producer, asked);
            case "read" -> read(asked, done.putArray("values"));
            default -> throw new IllegalArgumentException(asked.get("do").asText());
        }
        return done;
    }

    static ObjectNode refusal(Throwable cause) {
        // What ended a transaction is wrapped when the producer is asked for more.
        Throwable told = cause;
        while (Errors.forException(told) == Errors.UNKNOWN_SERVER_ERROR && told.getCause() != null) {
            told = told.getCause();
        }
        return JSON.createObjectNode()
                .put("code", Errors.forException(told).code())
                .put("message", cause.toString());
    }

    static void open(String name, JsonNode asked) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", asked.get("servers").asText());
        settings.put("transactional.id", asked.get("transactional_id").asText());
        settings.put("transaction.timeout.ms", asked.get("timeout_ms").asInt());
        for (var each : asked.path("settings").properties()) {
            settings.put(each.getKey(), each.getValue().asText());
        }
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        PRODUCERS.put(name, producer);
        producer.initTransactions();
    }

    static void send(KafkaProducer<String, String> producer, JsonNode asked, ArrayNode offsets)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : asked.get("values")) {
            sent.add(producer.send(new ProducerRecord<>(
                    asked.get("topic").asText(), asked.get("partition").asInt(), null, value.asText())));
        }
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get(DEADLINE_SECONDS, TimeUnit.SECONDS).offset());
        }
    }

    static void copy(KafkaProducer<String, String> producer, JsonNode asked) throws Exception {
        Map<String, Object> settings = settings(asked, true);
        settings.put("group.id", asked.get("group").asText());
        settings.put("group.protocol", asked.get("protocol").asText());
        settings.put("max.poll.records", 10);
        int left = asked.get("count").asInt();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_SECONDS);
        try (var consumer = consumer(settings)) {
            consumer.subscribe(List.of(asked.get("source").asText()));
            while (left > 0) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("nothing comes");
                }
                ConsumerRecords<String, String> polled = consumer.poll(Duration.ofMillis(200));
                if (!polled.isEmpty()) {
                    copy(producer, consumer, polled, asked);
                }
                left -= polled.count();
            }
        }
    }

    static void copy(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> polled,
            JsonNode asked) {
        producer.beginTransaction();
        for (ConsumerRecord<String, String> each : polled) {
            producer.send(new ProducerRecord<>(
                    asked.get("target").asText(), each.partition(), null, each.value()));
        }
        producer.flush(); // an abort drops what is not sent yet
        producer.sendOffsetsToTransaction(polled.nextOffsets(), consumer.groupMetadata());
        if (asked.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    static void read(JsonNode asked, ArrayNode values) {
        TopicPartition partition = new TopicPartition(asked.get("topic").asText(), 0);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_SECONDS);
        try (var consumer = consumer(settings(asked, asked.get("committed").asBoolean()))) {
            consumer.assign(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("it has no end");
                }
                consumer.poll(Duration.ofMillis(200)).forEach(each -> values.add(each.value()));
            }
        }
    }

    /** From the start of each partition on, which must not be lost: nothing resets the offset. */
    static void assign(String name, JsonNode asked) {
        List<TopicPartition> places = new ArrayList<>();
        for (JsonNode each : asked.get("places")) {
            places.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt()));
        }
        Map<String, Object> settings = settings(asked, asked.get("committed").asBoolean());
        settings.put("auto.offset.reset", "none");
        settings.put("max.poll.records", 50);
        var consumer = consumer(settings);
        consumer.assign(places);
        places.forEach(each -> consumer.seek(each, 0));
        CONSUMERS.put(name, consumer);
    }

    static void poll(KafkaConsumer<String, String> consumer, ArrayNode records) {
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
            records.addArray().add(each.topic()).add(each.partition()).add(each.offset()).add(each.value());
        }
    }

    static KafkaConsumer<String, String> consumer(Map<String, Object> settings) {
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static Map<String, Object> settings(JsonNode asked, boolean committed) {
        return new HashMap<>(Map.of(
                "bootstrap.servers", asked.get("servers").asText(),
                "isolation.level", committed ? "read_committed" : "read_uncommitted",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "fetch.max.wait.ms", 100)); // closing waits for the fetch under way
    }
}
