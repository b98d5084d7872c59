// Apache Kafka's Java client behind the JSON lines that program.py describes. `java` runs this file
// as it is; Jackson comes with Kafka's jars.

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
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class JavaClient {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int DEADLINE_SECONDS = 60;
    static KafkaProducer<byte[], byte[]> kept;

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
            return switch (asked.get("do").asText()) {
                case "create" -> create(asked);
                case "produce" -> produce(asked);
                case "open" -> open(asked);
                case "send" -> send(kept, asked);
                case "close" -> close();
                case "consume" -> consume(asked);
                case "group" -> group(asked);
                default -> throw new IllegalArgumentException(asked.get("do").asText());
            };
        } catch (ExecutionException refused) {
            return refusal(refused.getCause());
        } catch (ApiException refused) {
            return refusal(refused);
        }
    }

    static ObjectNode refusal(Throwable cause) {
        return JSON.createObjectNode()
                .put("code", Errors.forException(cause).code())
                .put("message", cause.toString());
    }

    static ObjectNode create(JsonNode asked) throws Exception {
        Map<String, String> configs = new HashMap<>();
        asked.get("configs").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
        NewTopic topic =
                new NewTopic(asked.get("topic").asText(), asked.get("partitions").asInt(), (short) 1);
        try (Admin admin = Admin.create(settings(asked))) {
            admin.createTopics(List.of(topic.configs(configs))).all().get(DEADLINE_SECONDS, TimeUnit.SECONDS);
        }
        return JSON.createObjectNode();
    }

    static ObjectNode produce(JsonNode asked) throws Exception {
        try (var producer = producer(asked)) {
            return send(producer, asked);
        }
    }

    static ObjectNode open(JsonNode asked) {
        kept = producer(asked);
        return JSON.createObjectNode();
    }

    static ObjectNode close() {
        kept.close(Duration.ZERO);
        return JSON.createObjectNode();
    }

    static KafkaProducer<byte[], byte[]> producer(JsonNode asked) {
        Map<String, Object> settings = settings(asked);
        settings.put("compression.type", asked.get("codec").asText());
        settings.put("acks", asked.get("acks").asText());
        settings.put("max.request.size", 10_000_000);
        settings.put("linger.ms", 20);
        settings.put("enable.idempotence", asked.get("idempotent").asBoolean());
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static ObjectNode send(KafkaProducer<byte[], byte[]> producer, JsonNode asked) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode places = answer.putArray("places");
        for (JsonNode record : asked.get("records")) {
            futures.add(producer.send(record(asked, record)));
        }
        for (Future<RecordMetadata> future : futures) {
            RecordMetadata done = future.get(DEADLINE_SECONDS, TimeUnit.SECONDS);
            places.addArray().add(done.partition()).add(done.offset());
        }
        return answer;
    }

    static ProducerRecord<byte[], byte[]> record(JsonNode asked, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Integer partition = asked.get("partition").isNull() ? null : asked.get("partition").asInt();
        return new ProducerRecord<>(asked.get("topic").asText(), partition,
                record.get("timestamp").asLong(), bytes(record.get("key")), bytes(record.get("value")), headers);
    }

    static ObjectNode consume(JsonNode asked) {
        Map<String, Object> settings = settings(asked);
        settings.put("auto.offset.reset", "none");
        TopicPartition partition =
                new TopicPartition(asked.get("topic").asText(), asked.get("partition").asInt());
        try (var consumer = consumer(settings)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, asked.get("start").asLong());
            return poll(consumer, asked.get("count").asInt());
        }
    }

    static ObjectNode group(JsonNode asked) {
        Map<String, Object> settings = settings(asked);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("group.id", asked.get("group").asText());
        settings.put("group.protocol", asked.get("protocol").asText());
        try (var consumer = consumer(settings)) {
            consumer.subscribe(List.of(asked.get("topic").asText()));
            ObjectNode answer = poll(consumer, asked.get("count").asInt());
            consumer.commitSync();
            return answer;
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        settings.put("fetch.max.wait.ms", 100); // closing waits for the fetch under way
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static ObjectNode poll(KafkaConsumer<byte[], byte[]> consumer, int count) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode records = answer.putArray("records");
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_SECONDS);
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(each -> records.add(seen(each)));
        }
        return answer;
    }

    static ObjectNode seen(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode seen = JSON.createObjectNode()
                .put("partition", record.partition())
                .put("offset", record.offset())
                .put("timestamp", record.timestamp())
                .put("key", text(record.key()))
                .put("value", text(record.value()));
        ArrayNode headers = seen.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return seen;
    }

    static Map<String, Object> settings(JsonNode asked) {
        return new HashMap<>(Map.of("bootstrap.servers", asked.get("servers").asText()));
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
