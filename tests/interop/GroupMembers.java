// Members of consumer groups, of Kafka's own client; group_member_program.py has the protocol.

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
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class GroupMembers {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream EVENTS = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    static final int HEARTBEAT_MS = 200;

    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new HashMap<>();
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            String name = asked.get("name").asText();
            if (asked.get("do").asText().equals("join")) {
                Member member = new Member(asked);
                members.put(name, member);
                Thread thread = new Thread(member, name);
                thread.setDaemon(true);
                thread.start();
            } else {
                members.get(name).commands.add(asked.get("do").asText());
            }
        }
    }

    static class Member implements Runnable, ConsumerRebalanceListener {
        final ConcurrentLinkedQueue<String> commands = new ConcurrentLinkedQueue<>();
        final JsonNode asked;

        Member(JsonNode asked) {
            this.asked = asked;
        }

        @Override
        public void run() {
            try (var consumer = new KafkaConsumer<>(
                    settings(), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                subscribe(consumer);
                poll(consumer);
            } catch (Throwable error) {
                say(event("error").put("message", error.toString()));
            }
            say(event("left"));
        }

        void poll(KafkaConsumer<byte[], byte[]> consumer) {
            for (String command = commands.poll(); !"leave".equals(command); command = commands.poll()) {
                if ("commit".equals(command)) {
                    ObjectNode event = event("committed");
                    ArrayNode offsets = event.putArray("offsets");
                    consumer.assignment().forEach(each -> offsets.addArray()
                            .add(each.topic()).add(each.partition()).add(consumer.position(each)));
                    consumer.commitSync();
                    say(event);
                }
                consumer.poll(Duration.ofMillis(50)).forEach(each -> say(event("read")
                        .put("topic", each.topic())
                        .put("partition", each.partition())
                        .put("offset", each.offset())));
            }
        }

        void subscribe(KafkaConsumer<byte[], byte[]> consumer) {
            boolean isClassic = asked.get("protocol").asText().equals("classic");
            if (asked.get("pattern").isNull()) {
                List<String> topics = new ArrayList<>();
                asked.get("topics").forEach(each -> topics.add(each.asText()));
                consumer.subscribe(topics, this);
            } else if (isClassic) {
                consumer.subscribe(Pattern.compile(asked.get("pattern").asText()), this);
            } else {
                consumer.subscribe(new SubscriptionPattern(asked.get("pattern").asText()), this);
            }
        }

        Map<String, Object> settings() {
            boolean isClassic = asked.get("protocol").asText().equals("classic");
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", asked.get("servers").asText());
            settings.put("client.id", asked.get("name").asText());
            settings.put("group.id", asked.get("group").asText());
            settings.put("group.protocol", asked.get("protocol").asText());
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", false);
            settings.put("metadata.max.age.ms", 500);
            settings.put("fetch.max.wait.ms", 100);
            settings.put("default.api.timeout.ms", 180_000);
            settings.put("reconnect.backoff.max.ms", 100);
            settings.put("retry.backoff.max.ms", 200);
            if (isClassic) {
                settings.put("session.timeout.ms", asked.get("session_ms").asInt());
                settings.put("heartbeat.interval.ms", HEARTBEAT_MS);
            }
            if (!asked.get("instance").isNull()) {
                settings.put("group.instance.id", asked.get("instance").asText());
            }
            String assignor = asked.get("assignor").asText("");
            if (assignor.equals("cooperative-sticky")) {
                settings.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
            } else if (!isClassic && !asked.get("assignor").isNull()) {
                settings.put("group.remote.assignor", assignor);
            }
            return settings;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> given) {
            sayPartitions("assigned", given);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> taken) {
            sayPartitions("revoked", taken);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> taken) {
            sayPartitions("lost", taken);
        }

        void sayPartitions(String name, Collection<TopicPartition> partitions) {
            ObjectNode event = event(name);
            ArrayNode list = event.putArray("partitions");
            partitions.forEach(each -> list.addArray().add(each.topic()).add(each.partition()));
            say(event);
        }

        ObjectNode event(String name) {
            return JSON.createObjectNode().put("name", asked.get("name").asText()).put("event", name);
        }

        static void say(ObjectNode event) {
            synchronized (EVENTS) {
                EVENTS.println(event);
            }
        }
    }
}
